"""Operators that change and read a log's configuration, each at a node of its own, even if it was deposed."""

from __future__ import annotations

import asyncio
import itertools

from chaos.history.tables import INFO, INITIAL, LEADER_OF, OK, READ, WRITE, RegisterRow
from chaos.workloads.world import CLIENT_ERRORS, LogName, World
from holdfast.client import AdminClient

ASK_S = 5.0
ASK_EVERY_S = 0.4
WRITES = 0.3
"""Share of writes among an operator's calls."""
NEVER_REACHED_BYTES = 10**12
"""Least retention that operators write: far above the size of the log, so nothing is deleted."""


class Operator:
    """An operator at one node. `number`: unique in a run, so that no two operators write the same value."""

    def __init__(self, world: World, log: LogName, node: int, number: int) -> None:
        self._world, self._log, self._name = world, log, f"operator-{node}"
        self._server = world.servers["consumers"][node - 1]
        self._register = f"retention of {log.name}"
        self._values = itertools.count(NEVER_REACHED_BYTES + number, 1000)

    async def run(self) -> None:
        async with AdminClient(self._server, timeout_s=ASK_S, options=self._world.network) as admin:
            while not self._world.over.is_set():
                if self._world.chance.random() < WRITES:
                    await self._write(admin, next(self._values))
                else:
                    await self._read(admin)
                await self._world.pause(ASK_EVERY_S)

    async def _write(self, admin: AdminClient, value: int) -> None:
        call = self._world.recorder.begin(self._name, "alter", within_s=2 * ASK_S)
        outcome: str = INFO
        why: BaseException | None = None
        try:
            await admin.alter_log(self._log.name, retention_bytes=value)
            outcome = OK
        except CLIENT_ERRORS as error:
            why = error  # none of them proves that nothing was changed
        except asyncio.CancelledError as error:
            why = error
            raise
        finally:
            op = self._world.recorder.end(call, outcome, why)
            self._note(op.op_id, self._register, WRITE, value, outcome, op.t_inv_ns, op.t_end_ns)

    async def _read(self, admin: AdminClient) -> None:
        call = self._world.recorder.begin(self._name, "describe", within_s=2 * ASK_S)
        try:
            found = await admin.describe_log(self._log.name)
        except CLIENT_ERRORS as error:
            self._world.recorder.end(call, INFO, error)
            return
        except asyncio.CancelledError:
            self._world.recorder.end(call, INFO, "cancelled")
            raise
        op = self._world.recorder.end(call)
        value = found["retention_bytes"]
        self._note(op.op_id, self._register, READ, INITIAL if value is None else value, OK, op.t_inv_ns, op.t_end_ns)
        for one in found["partitions"]:
            register = f"{LEADER_OF}{self._log.told(one['partition'])}"
            self._note(op.op_id, register, READ, one["leader"], OK, op.t_inv_ns, op.t_end_ns)

    def _note(
        self, op_id: int, register: str, f: str, value: int | None, outcome: str, t_inv_ns: int, t_end_ns: int | None
    ) -> None:
        self._world.recorder.history.registers.append(
            RegisterRow(op_id, register, f, value, outcome, t_inv_ns, t_end_ns)
        )
