"""What a run, its faults and its checkers need of a cluster, wherever its nodes run: whom clients connect to, what can
be done to a node, and what the cluster can be asked past all that is in its way.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from chaos.cluster.links import Links
from chaos.cluster.nodes import READY_WITHIN_S
from holdfast.client import AdminClient, HoldfastError, NetworkOptions, Security

T = TypeVar("T")

CLASSES = ("producers", "consumers")
"""Of clients."""
ASK_AGAIN_S = 0.05
ADMIN_S = 10.0
LEVEL_WITHIN_S = 60.0
DECIDED_WITHIN_S = 30.0
"""What writers have left open: a partition asks after three seconds what became of it, and the coordinator decides by
the transaction's timeout."""


class NodeOfCluster(Protocol):
    """One node, as something that can be hurt."""

    id: int
    complaints: list[str]
    is_paused: bool

    @property
    def is_running(self) -> bool: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stop(self) -> object:
        """As an operator would."""

    def ready_within(self, seconds: float) -> bool:
        """False: it has not said so yet; it may still."""

    def look(self) -> list[str]:
        """What is wrong with it that nobody did to it, since the last look; added to its complaints."""

    def leaderships(self, begun_ns: int) -> Iterator[tuple[int, int, int]]:
        """Group, term and time (of the monotonic clock) of each, since then."""


class ChaosCluster(ABC):
    """Made, `start`ed, and in any case `close`d. `links`: between its nodes and to them, those that can be harmed."""

    nodes: Mapping[int, NodeOfCluster]

    def __init__(self, directory: Path, name: str, security: Security | None = None) -> None:
        self.directory, self.name = directory.resolve(), name
        self.links = Links()
        self.security = security or Security()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="asks-the-cluster", daemon=True)
        self._thread.start()

    # ---------------------------------------------------------------- what differs

    @abstractmethod
    def servers(self, who: str) -> list[str]:
        """Where clients of a class find the nodes."""

    @abstractmethod
    def direct(self, node: int) -> str:
        """Where the node is reached past all proxies."""

    @abstractmethod
    def start(self, *numbers: int) -> None:
        """These nodes, or all that are down; returns when each is ready."""

    @abstractmethod
    def spawn(self, *numbers: int) -> None:
        """The same without waiting."""

    @abstractmethod
    def kill(self, *numbers: int) -> None:
        """kill -9; they stay dead until they are started."""

    @abstractmethod
    def heal(self) -> None:
        """Whatever was done: every node runs, and none stands still."""

    @abstractmethod
    def conclude(self) -> None:
        """Nobody asks it for anything any more: it comes to the state in which a run leaves it."""

    @abstractmethod
    def let_go(self) -> None:
        """What was done is undone, and nothing more will be; what the run wrote is still there. Idempotent."""

    @abstractmethod
    def keep_logs(self) -> None:
        """What the run wrote stays, for whoever wants to know why it failed."""

    beginning: str
    ending: str
    """What `start` and `conclude` come to, for people."""
    prefix = ""
    """Of names that a cluster has once, and that others may have, too."""

    def log_name(self, number: int) -> str:
        """Of a log of the run's own."""
        return f"{self.prefix}chaos{number}"

    def stores(self) -> dict[int, Path]:
        """Where the data of nodes lie that do not run any more. Empty: nobody may look at them."""
        return {}

    def close(self) -> None:
        """Idempotent. Nothing of a run is left."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    # ---------------------------------------------------------------- questions, past the proxies

    @property
    def running(self) -> list[int]:
        return [number for number, node in self.nodes.items() if node.is_running]

    def call(self, work: Callable[[AdminClient], Coroutine[Any, Any, T]], nodes: Iterable[int] = ()) -> T:
        """From any thread but that of the cluster's own loop."""

        async def run() -> T:
            servers = [self.direct(node) for node in list(nodes) or self.nodes]
            options = NetworkOptions(security=self.security)
            async with AdminClient(servers, timeout_s=ADMIN_S, options=options) as admin:
                return await work(admin)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def hand_over(self, node: int) -> None:
        """It moves what it leads elsewhere, and leads nothing until `lead_again`."""
        self.call(lambda admin: admin.drain_node(node), [node])

    def lead_again(self, node: int) -> None:
        self.call(lambda admin: admin.resume_node(node), [node])

    def create_log(self, log: str, partitions: int) -> None:
        replicas = len(self.nodes)
        self.call(lambda admin: admin.create_log(log, partitions=partitions, replicas=replicas))
        self.wait_for(lambda: len(self.leaders(log)) == partitions, f"leaders of {log}")

    def leaders(self, log: str) -> dict[int, int]:
        """Partition -> node, of the partitions that somebody is known to lead who runs. Asked of the nodes that can
        answer: in the middle of a fault that may be none."""
        for node in self.running:
            if self.nodes[node].is_paused:
                continue
            with contextlib.suppress(HoldfastError):
                described = self.call(lambda admin: admin.describe_log(log), [node])
                found = {int(one["partition"]): one["leader"] for one in described["partitions"]}
                return {partition: leader for partition, leader in found.items() if leader in self.running}
        return {}

    def coordinators(self, transactional_ids: Sequence[str]) -> dict[str, int]:
        """Id -> node that leads its coordinator, of the ids that the cluster knows, where that node runs. {}: nobody
        can say now."""

        async def ask(admin: AdminClient) -> dict[str, int | None]:
            async def leader(name: str) -> int | None:
                with contextlib.suppress(HoldfastError):
                    found: int | None = (await admin.describe_transaction(name))["coordinator"]["leader"]
                    return found
                return None

            told = await asyncio.gather(*map(leader, transactional_ids))
            return dict(zip(transactional_ids, told, strict=True))

        for node in self.running:
            if not self.nodes[node].is_paused:
                told = self.call(ask, [node])
                found = {name: leader for name, leader in told.items() if leader is not None and leader in self.running}
                if found:
                    return found
        return {}

    def groups(self, log: str) -> dict[int, int]:
        """Raft group -> partition."""
        described = self.call(lambda admin: admin.describe_log(log))
        return {int(one["group"]): int(one["partition"]) for one in described["partitions"]}

    def wait_level(self, log: str) -> None:
        """Every replica has what the others have, and votes. Nobody writes any more."""

        def level() -> bool:
            try:
                partitions = self.call(lambda admin: admin.describe_log(log))["partitions"]
            except HoldfastError:
                return False
            states = [list(partition["replica_states"]) for partition in partitions]
            return all(len({state.get("applied") for state in each}) == 1 for each in states) and all(
                state["state"] == "follows" for each in states for state in each
            )

        self.wait_for(level, f"all replicas of {log} to be level", LEVEL_WITHIN_S)

    def wait_decided(self, log: str) -> None:
        """No transaction is open in it: committed readers get all that was acknowledged. Nobody begins one any more."""

        def decided() -> bool:
            try:
                infos = self.call(lambda admin: admin.log_info(log))
            except HoldfastError:
                return False
            return all(info.available and not info.open_transactions for info in infos)

        self.wait_for(decided, f"every transaction in {log} to be decided", DECIDED_WITHIN_S)

    @staticmethod
    def wait_for(condition: Callable[[], Any], what: str, within_s: float = READY_WITHIN_S) -> None:
        deadline_s = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"waited {within_s:g} s in vain for {what}")
            time.sleep(ASK_AGAIN_S)
