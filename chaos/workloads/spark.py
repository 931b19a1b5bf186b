"""Workload W5: a query of Spark reads one log and writes another, each event once, while nodes and its driver fail.

The run kills the driver with all its processes, and another driver goes on from the checkpoint. The query does not
report its batches while it runs; the checkpoint tells their outcome at the end.

In histories a batch is a transaction. A batch that Spark knows to be committed must be there as a whole, one of unknown
outcome as a whole or not at all, and no event may be there twice. The times of batches are unknown, too. So the history
says that each was under way all the time, which claims less.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from chaos.history.tables import INFO, OK, CommitRow, ComplaintRow, InputRow, SendRow, TransactionRow
from chaos.history.values import read_value
from chaos.workloads.readers import DRAIN_S
from chaos.workloads.spark_batches import CHECKPOINT, FINISH, Batch, batches, is_in_a_batch, made_of, place_of
from chaos.workloads.world import LogName, World
from holdfast.cli.local_cluster import child_processes
from holdfast.client import ConsumerClient, ConsumerOptions, Start

ROOT = Path(__file__).resolve().parents[2]
GROUP = "spark"
FINISHES_WITHIN_S = 480.0
"""Bound from `over` to the end of the last driver: Java may have to start once more on a busy machine."""
ENDS_WITHIN_S = FINISHES_WITHIN_S + DRAIN_S
LOOKS_EVERY_S = 0.1
AMID_S = 3.0
"""Longest time from the begin of a batch to the kill of its driver; an idle driver would not notice a kill."""
OF_A_BATCH = 500


def missing() -> str:
    """Say why Spark cannot run here; "" if it can."""
    lacking = [name for name in ("pyspark", "pandas") if find_spec(name) is None]
    if lacking:
        return f"there is no {', '.join(lacking)}: pip install 'holdfast[spark]'"
    return "" if shutil.which("java") else "there is no Java, which Spark runs on"


class SparkQuery:
    def __init__(self, world: World, source: LogName, target: LogName, name: str) -> None:
        self._world, self._source, self._target, self._name = world, source, target, name
        self._crash = world.can_crash()
        self._directory = world.directory / name
        self._begun_ns = time.monotonic_ns()
        self._process: subprocess.Popen[bytes] | None = None
        self._give_up_s = math.inf

    async def run(self) -> None:
        self._directory.mkdir(parents=True)
        try:
            while not await self._live():
                pass  # it was killed or failed; another driver goes on
        finally:
            self._kill()
        await self._tell()

    # ---------------------------------------------------------------- the driver

    def _started(self) -> subprocess.Popen[bytes]:
        job = {
            "read_from": ",".join(self._world.servers["consumers"]), "source": self._source.name,
            "write_to": ",".join(self._world.servers["producers"]), "target": self._target.name,
            "partitions": self._target.partitions, "told": self._target.told(0), "name": self._name,
            "directory": str(self._directory), "most": OF_A_BATCH,
        }  # fmt: skip
        with (self._directory / "driver.log").open("ab") as log:
            return child_processes.spawn(
                [sys.executable, "-m", "chaos.workloads.spark_job", json.dumps(job)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT, start_new_session=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT),
                     "SPARK_LOCAL_IP": "127.0.0.1"},
            )  # fmt: skip

    async def _live(self) -> bool:
        """Run one driver; return True if it has written everything or time is over, so that no other one is needed."""
        self._process, begun_s = self._started(), time.time()
        while self._process.poll() is None:
            if self._world.over.is_set() and not (self._directory / FINISH).exists():
                (self._directory / FINISH).touch()
                self._give_up_s = time.monotonic() + FINISHES_WITHIN_S
            if time.monotonic() > self._give_up_s:
                text = f"the query of Spark had not come to its end {FINISHES_WITHIN_S:g} s after the last fault"
                self._world.recorder.history.complaints.append(ComplaintRow(0, time.monotonic_ns(), text))
                return True
            if self._crash.is_set() and is_in_a_batch(self._directory / CHECKPOINT, begun_s):
                self._crash.clear()
                await asyncio.sleep(self._world.chance.uniform(0.0, AMID_S))
                self._kill()
                return False
            await asyncio.sleep(LOOKS_EVERY_S)
        return self._process.returncode == 0

    def _kill(self) -> None:
        """Kill the driver with SIGKILL, with Java and the Python workers."""
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    # ---------------------------------------------------------------- what became of its batches

    async def _tell(self) -> None:
        values = await self._values()
        for batch in batches(self._directory / CHECKPOINT):
            self._tell_batch(batch, values)

    async def _values(self) -> dict[tuple[str, int], str]:
        """Read all values of the source, by partition and offset, once all writers have ended."""
        found: dict[tuple[str, int], str] = {}
        options = ConsumerOptions(until_end=True)
        servers = self._world.servers["consumers"]
        async with (
            asyncio.timeout(DRAIN_S),
            ConsumerClient(servers, self._source.name, start=Start.earliest(), options=options) as consumer,
        ):
            while events := await consumer.receive(timeout_s=DRAIN_S / 2):
                found |= {(one.partition, int(one.offset, 16)): read_value(one.body).msg_id for one in events}
        return found

    def _tell_batch(self, batch: Batch, values: dict[tuple[str, int], str]) -> None:
        recorder, outcome = self._world.recorder, OK if batch.is_committed else INFO
        history, txn = recorder.history, f"{self._name}/{batch.number}"
        call = recorder.begin(self._name, "txn-commit")
        call.t_inv_ns = self._begun_ns
        recorder.end(call, outcome)
        history.transactions.append(TransactionRow(txn, self._name, call.op_id, "commit", outcome, self._begun_ns))
        for (partition, offset), value in values.items():
            if not batch.has(partition, offset):
                continue
            output = made_of(self._name, value)
            place = self._target.told(place_of(output, self._target.partitions))
            history.sends.append(SendRow(call.op_id, output, place, self._name, None, None, txn, outcome, None))
            history.inputs.append(InputRow(txn, output, self._source.told(partition), offset, value))
        for partition, end in batch.end.items():
            if end > batch.begin.get(partition, 0):
                history.commits.append(
                    CommitRow(call.op_id, GROUP, self._name, 1, self._source.told(partition), end - 1, txn)
                )
