"""Nodes found through ZooKeeper.

The problem: registrations are ephemeral and the cluster is not; sessions end while processes live; kazoo has threads
and the node has a loop. The rules: the voters are written once, into a node of ZooKeeper that is never changed, when as
many nodes as the cluster begins with are registered at the same time; a registration is made again by one loop that
compares what is there with what should be (`zookeeper_registration.py`), whatever happened in between; every call
into kazoo happens on one worker thread and has a bound; nothing on the data path waits for any of it. Rejected: kazoo's
recipes; its locks and parties act on events, and an event that was missed stays missed.

    ROOT/CLUSTER/cluster       {"format": 1, "id": ..., "voters": {"1": "host:port", ...}}
    ROOT/CLUSTER/nodes/ID      ephemeral: {"format": 1, "node": 1, "token": ..., "rpc": ..., "listeners": {...},
                               "version": ...}
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, KazooException, NoAuthError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry

from cluster.discovery.api import Changed, DiscoveryError, Member, NotAMember, OtherCluster, SecondRegistration
from cluster.discovery.remembered_cluster import RememberedCluster
from cluster.discovery.zookeeper_registration import (
    Foreign,
    Registration,
    Seen,
    ZooKeeperOptions,
)

__all__ = ["ZooKeeperDiscovery", "ZooKeeperOptions"]

log = logging.getLogger("holdfast.discovery")

RECHECK_S = 5.0
"""Watches tell of changes; this is for those that a lost connection swallowed."""

RETRY_S = 0.5
"""After a failed step: ZooKeeper elects a leader in about so long."""

SAY_AGAIN_S = 10.0
"""A wait that goes on is logged so often."""

RECONNECT_MOST_S = 2.0
"""Longest pause between kazoo's attempts to connect: a node is registered soon after ZooKeeper is back."""

RENEW_AFTER_SESSIONS = 3.0
"""A client that was disconnected for so many session times is replaced: its session is over, and a ZooKeeper that lost
its data turns clients away that have seen more of its history than it has itself."""

CLOSE_WITHIN_S = 3.0
"""Time for saying goodbye; ZooKeeper ends the session by itself otherwise."""


class ZooKeeperDiscovery:
    """Implements `Discovery`. The caller closes `memory`."""

    def __init__(self, cluster: str, me: Member, options: ZooKeeperOptions, memory: RememberedCluster) -> None:
        self.waiting_for = "its first attempt"
        self._me = me
        self._options = options
        self._memory = memory
        self._steps = Registration(cluster, me, options, memory)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="zookeeper")
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Any = None
        self._task: asyncio.Task[None] | None = None
        self._joined: asyncio.Future[Mapping[int, str]] | None = None
        self._members: Mapping[int, Member] = {}
        self._subscribers: list[Changed] = []
        self._said_s = 0.0
        self._foreign_since_s: float | None = None
        self._away_since_s: float | None = None
        self._closed = False

    async def join(self) -> Mapping[int, str]:
        self._loop = asyncio.get_running_loop()
        self._joined = self._loop.create_future()
        self._steps.poke = self._poke
        self._client = self._make_client()
        self._task = self._loop.create_task(self._keep(), name="zookeeper")
        return await self._joined

    @property
    def cluster_id(self) -> str:
        known = self._memory.cluster
        return str(known["id"]) if known is not None and self._joined is not None and self._joined.done() else ""

    def members(self) -> Mapping[int, Member]:
        return self._members

    def subscribe(self, changed: Changed) -> None:
        self._subscribers.append(changed)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._client is not None:
            loop = asyncio.get_running_loop()
            # Not on the worker: it may be in the middle of a step that waits for a server.
            goodbye = loop.run_in_executor(None, _end, self._client)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_WITHIN_S):
                    await asyncio.shield(goodbye)
        self._worker.shutdown(wait=False)

    # -- the loop that compares

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            failed = not await self._step(loop)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if failed else RECHECK_S):
                    await self._wake.wait()
            if failed:
                await asyncio.sleep(RETRY_S / 5)  # pokes come in bursts while a connection comes and goes

    async def _step(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Take one step. Returns True if there is nothing to do before the next poke."""
        if not self._client.connected:
            self._waits(f"a connection to ZooKeeper at {self._options.hosts}")
            self._renew_if_long(loop)
            return False
        self._away_since_s = None
        try:
            seen = await loop.run_in_executor(self._worker, self._steps.run, self._client)
        except (NoAuthError, AuthFailedError) as error:
            self._refuse(DiscoveryError(
                f"ZooKeeper refuses access to {self._steps.base} ({type(error).__name__}): correct "
                "discovery.zookeeper.auth_file, the same on every node, or the ACL of what is there"
            ))  # fmt: skip
            return False
        except (KazooException, KazooTimeoutError, OSError) as error:
            self._waits(f"ZooKeeper at {self._options.hosts}: {type(error).__name__} {error}".strip())
            return False
        except DiscoveryError as error:
            self._refuse(error)
            return False
        except Exception as error:  # a defect of ours must not end the registration of a node that runs
            log.exception("a step of the registration failed")
            if self._joined is not None and not self._joined.done():
                self._joined.set_exception(error)
            return False
        return self._note(seen, loop.time())

    def _note(self, seen: Seen, now_s: float) -> bool:
        if isinstance(seen.registration, Foreign):
            return self._taken(seen.registration, now_s)
        self._foreign_since_s = None
        if dict(self._members) != dict(seen.members):
            self._members = seen.members
            for changed in list(self._subscribers):
                changed(seen.members)
        if seen.voters is None:
            have = ", ".join(map(str, sorted(seen.members))) or "none"
            self._waits(
                f"{self._options.initial_nodes} nodes, with which the cluster begins "
                f"(discovery.zookeeper.initial_nodes); registered: {have}"
            )
            return True
        self._settle(seen.cluster_id, seen.voters)
        return True

    def _settle(self, cluster_id: str, voters: Mapping[int, str]) -> None:
        known = self._memory.cluster
        if known is not None and known["id"] != cluster_id:
            self._refuse(OtherCluster(
                f"{self._steps.base} describes cluster {cluster_id}, but the data here belongs to {known['id']}: "
                "correct cluster.name or discovery.zookeeper, or give the node the right data_dir"
            ))  # fmt: skip
        elif self._me.node not in voters:
            self._refuse(NotAMember(
                f"the cluster consists of nodes {sorted(voters)}, node {self._me.node} is not among them; nodes cannot "
                "join a running cluster yet"
            ))  # fmt: skip
        else:
            self._memory.remember(cluster_id, voters)
            if self.waiting_for:
                log.info("node %d is registered in ZooKeeper, cluster %s", self._me.node, cluster_id)
            self.waiting_for = ""
            if self._joined is not None and not self._joined.done():
                self._joined.set_result(
                    {node: self._address_now(node, address) for node, address in sorted(voters.items())}
                )

    def _address_now(self, node: int, written: str) -> str:
        """Address of a node: one that has moved since the cluster began registers where it is now."""
        member = self._members.get(node)
        return written if member is None else member.rpc_address

    def _taken(self, other: Foreign, now_s: float) -> bool:
        """Our id, another data directory. What a crash left ends with its session; what stays is alive."""
        if self._foreign_since_s is None:
            self._foreign_since_s = now_s
        for_s = now_s - self._foreign_since_s
        told = f"node {self._me.node} is registered by another data directory, at {other.rpc_address}"
        if for_s > 2 * self._options.session_timeout_s:
            self._refuse(SecondRegistration(
                f"{told}, and that process lives: give this node an id of its own (node.id), or stop the other"
            ))  # fmt: skip
        self._waits(f"the end of a registration: {told}")
        return False

    def _refuse(self, error: DiscoveryError) -> None:
        """Before the node runs it is its end; later it is told, and what runs goes on."""
        if self._joined is not None and not self._joined.done():
            self._joined.set_exception(error)
        self._waits(str(error))

    def _waits(self, what: str) -> None:
        now_s = asyncio.get_running_loop().time()
        if what != self.waiting_for or now_s - self._said_s >= SAY_AGAIN_S:
            log.warning("node %d waits for %s", self._me.node, what)
            self._said_s = now_s
        self.waiting_for = what

    # -- kazoo

    def _renew_if_long(self, loop: asyncio.AbstractEventLoop) -> None:
        now_s = loop.time()
        if self._away_since_s is None:
            self._away_since_s = now_s
        elif now_s - self._away_since_s > RENEW_AFTER_SESSIONS * self._options.session_timeout_s:
            self._away_since_s = now_s
            loop.run_in_executor(None, _end, self._client)
            self._client = self._make_client()

    def _make_client(self) -> Any:
        """Make a client that connects from now on."""
        options = self._options
        client = KazooClient(
            hosts=options.hosts,
            timeout=options.session_timeout_s,
            auth_data=[("digest", options.auth)] if options.auth else None,
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, max_delay=RECONNECT_MOST_S, ignore_expire=True),
            use_ssl=options.tls,
            ca=options.ca_file or None,
            certfile=options.cert_file or None,
            keyfile=options.key_file or None,
            check_hostname=options.tls and options.verify_hostname,
            logger=logging.getLogger("holdfast.discovery.kazoo"),
        )
        client.add_listener(self._poke)
        client.start_async()
        return client

    def _poke(self, *_: object) -> None:
        """Look again; called from kazoo's threads."""
        if self._loop is not None and not self._closed:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                self._loop.call_soon_threadsafe(self._wake.set)


def _end(client: Any) -> None:
    client.stop()
    client.close()
