"""Interface of a cluster under test, for runs, faults and checkers, wherever its nodes run.

It gives the addresses for clients, the operations on nodes, and questions to nodes that bypass all proxies.
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
"""Classes of clients; each has addresses of its own."""
ASK_AGAIN_S = 0.05
ADMIN_S = 10.0
LEVEL_WITHIN_S = 60.0
DECIDED_WITHIN_S = 30.0
"""Time for transactions that writers left open: a partition asks for the outcome after three seconds, and the
coordinator decides by the transaction's timeout."""


class NodeOfCluster(Protocol):
    """One node of a cluster, on which faults can act."""

    id: int
    complaints: list[str]
    is_paused: bool

    @property
    def is_running(self) -> bool: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stop(self) -> object:
        """Stop the node as an operator would."""

    def ready_within(self, seconds: float) -> bool:
        """Wait for the node to be ready; False if it is not ready yet, but may become so."""

    def look(self) -> list[str]:
        """Find new failures of the node that no fault explains, and add them to its complaints."""

    def leaderships(self, begun_ns: int) -> Iterator[tuple[int, int, int]]:
        """Yield group, term and time (monotonic) of each leadership that began since `begun_ns`."""


class ChaosCluster(ABC):
    """A cluster under test. Call `start` first, and `close` in any case. `links`: those that faults can break."""

    nodes: Mapping[int, NodeOfCluster]
    spare_nodes = 0
    """Nodes without a replica, for each partition of logs that are created from now on."""

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
        """Return the addresses of the nodes for a class of clients."""

    @abstractmethod
    def direct(self, node: int) -> str:
        """Return the address of a node that bypasses all proxies."""

    @abstractmethod
    def start(self, *numbers: int) -> None:
        """Start these nodes, or all that are down; return when each is ready."""

    @abstractmethod
    def spawn(self, *numbers: int) -> None:
        """Start these nodes, or all that are down, without waiting."""

    @abstractmethod
    def kill(self, *numbers: int) -> None:
        """Kill these nodes with SIGKILL; they stay down until they are started."""

    @abstractmethod
    def heal(self) -> None:
        """End all faults: afterwards every node runs, and none is paused."""

    @abstractmethod
    def conclude(self) -> None:
        """Bring the cluster into the state in which a run leaves it. No client uses it any more."""

    @abstractmethod
    def let_go(self) -> None:
        """Undo all faults for good; the logs of the run stay. Idempotent."""

    @abstractmethod
    def keep_logs(self) -> None:
        """Keep the logs of the run on the cluster, to show why it failed."""

    beginning: str
    ending: str
    """Texts for people: what `start` and `conclude` do."""
    prefix = ""
    """Prefix of the names that the run creates in the cluster, which others use, too."""

    def log_name(self, number: int) -> str:
        """Return the name of one of the run's own logs."""
        return f"{self.prefix}chaos{number}"

    def stores(self) -> dict[int, Path]:
        """Return the data directories of stopped nodes; empty if the run may not read them."""
        return {}

    def close(self) -> None:
        """Remove everything that the run has made. Idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    # ---------------------------------------------------------------- questions, past the proxies

    @property
    def seen_nodes(self) -> list[NodeOfCluster]:
        """Nodes that the run has seen, with those that have left."""
        return list(self.nodes.values())

    @property
    def running(self) -> list[int]:
        return [number for number, node in self.nodes.items() if node.is_running]

    def call(self, work: Callable[[AdminClient], Coroutine[Any, Any, T]], nodes: Iterable[int] = ()) -> T:
        """Run `work` with an admin client and return its result. Blocks; not for the cluster's own loop."""

        async def run() -> T:
            servers = [self.direct(node) for node in list(nodes) or self.nodes]
            options = NetworkOptions(security=self.security)
            async with AdminClient(servers, timeout_s=ADMIN_S, options=options) as admin:
                return await work(admin)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def hand_over(self, node: int) -> None:
        """Move the leaderships of a node to others; it leads nothing until `lead_again`."""
        self.call(lambda admin: admin.drain_node(node), [node])

    def lead_again(self, node: int) -> None:
        self.call(lambda admin: admin.resume_node(node), [node])

    def create_log(self, log: str, partitions: int) -> None:
        replicas = max(1, len(self.nodes) - self.spare_nodes)
        self.call(lambda admin: admin.create_log(log, partitions=partitions, replicas=replicas))
        self.wait_for(lambda: len(self.leaders(log)) == partitions, f"leaders of {log}")

    def leaders(self, log: str) -> dict[int, int]:
        """Return partition -> leader, for partitions whose known leader runs.

        In the middle of a fault it can happen that no node can answer; then the result is {}."""
        for node in self.running:
            if self.nodes[node].is_paused:
                continue
            with contextlib.suppress(HoldfastError):
                described = self.call(lambda admin: admin.describe_log(log), [node])
                found = {int(one["partition"]): one["leader"] for one in described["partitions"]}
                return {partition: leader for partition, leader in found.items() if leader in self.running}
        return {}

    def coordinators(self, transactional_ids: Sequence[str]) -> dict[str, int]:
        """Return transactional id -> leader of its coordinator, for known ids whose leader runs.

        The result is {} if no node can answer now."""

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
        """Return Raft group -> partition of a log."""
        described = self.call(lambda admin: admin.describe_log(log))
        return {int(one["group"]): int(one["partition"]) for one in described["partitions"]}

    def wait_level(self, log: str) -> None:
        """Wait until every replica votes and has applied what the others have. No client may still write."""

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
        """Wait until no transaction is open in the log, so that committed readers get all acknowledged events.

        No client may still begin one."""

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
