"""Network of a node: everything that it says to its peers and hears from them.

The problem: Raft wants to know which peers can be talked to, and at once when that changes; two one-way streams per
peer (one dialled by each side) carry the messages. The rule: a peer is *up* while both streams stand, and each change
is told exactly once, in order. One direction alone is worth little (a Raft that cannot hear the answers makes no
progress), but messages are still sent and delivered on it. Rejected: one bidirectional stream per pair; which side
dials would have to be agreed, and a cut of one direction would look like a cut of both.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, KeysView, Mapping, Sequence
from functools import partial
from typing import Any

from cluster.raft import FetchReply, FetchRequest, NodeId
from cluster.raft.replication.message_encoding import IncomingMessage
from cluster.rpc import options
from cluster.rpc.admission_report import Callers
from cluster.rpc.api import AddressInUse, AdminHost, PartitionHost, PartitionTypes, PeerClient, Unavailable
from cluster.rpc.grpc_calls.call_handlers import Services
from cluster.rpc.grpc_calls.peer_client import GrpcPeerClient
from cluster.rpc.grpc_calls.server import serve_calls
from cluster.rpc.handshake import Who
from cluster.rpc.peer_tls import PeerTls
from cluster.rpc.raft_transport.frame_writer import Encodable
from cluster.rpc.raft_transport.inbound import InboundLinks
from cluster.rpc.raft_transport.leader_hints import LeaderHintTable
from cluster.rpc.raft_transport.minority_detection import MinorityDetector
from cluster.rpc.raft_transport.outbound import OutboundLink
from cluster.rpc.raft_transport.stream_protocol import DiallerEnd, serve_stream
from cluster.rpc.rpc_pb2 import Clock, Hello
from cluster.rpc.shared_port import SharedPort
from cluster.stale_copy_detection import DirectoryStart

log = logging.getLogger("holdfast.rpc")


def _ignore(_: object) -> None:
    """No-op for a caller that does not listen."""


def _nobody_waits() -> None:
    """No-op for `on_contact`."""


def _no_clock(_: int, __: int) -> None:
    """No-op for `on_clock`."""


def _no_group(_: int, request: FetchRequest) -> FetchReply:
    """A network without groups: nothing to fetch, and the caller asks again elsewhere."""
    return FetchReply(group=request.group, number=request.number)


class _Peer:
    """State of both directions of one pair of nodes, folded into up and down."""

    def __init__(self, node: int, on_up: Callable[[int], None], on_down: Callable[[int], None]) -> None:
        self.node = node
        self.outbound = self.inbound = self.up = False
        self._on_up = on_up
        self._on_down = on_down

    def change(self, *, outbound: bool | None = None, inbound: bool | None = None) -> None:
        self.outbound = self.outbound if outbound is None else outbound
        self.inbound = self.inbound if inbound is None else inbound
        up = self.outbound and self.inbound
        if up != self.up:
            self.up = up
            log.info("node %d is %s", self.node, "up" if up else "down")
            (self._on_up if up else self._on_down)(self.node)

    def end(self) -> None:
        self.change(outbound=False, inbound=False)


class PeerNetwork:
    """Network between nodes. `peers` maps node ids to addresses; this node may be among them. Addresses are what *this*
    node dials: an address map (proxies, other networks) is applied by the caller, and `set_address` changes one while
    running. Peers come and go by `add_peer` and `forget_peer`.

    `on_messages(node, messages)`, `on_up(node)`, `on_down(node)` are called on the event loop; they queue and return.
    """

    def __init__(
        self,
        self_id: NodeId,
        cluster: str,
        bind: str,
        peers: Mapping[NodeId, str],
        *,
        on_messages: Callable[[NodeId, list[IncomingMessage]], None],
        on_up: Callable[[NodeId], None],
        on_down: Callable[[NodeId], None],
        types: PartitionTypes,
        partitions: PartitionHost,
        admin: AdminHost,
        on_leader: Callable[[int], None] | None = None,
        on_contact: Callable[[], None] = _nobody_waits,
        who: Who | None = None,
        on_hello: Callable[[Hello], None] = _ignore,
        serve_fetch: Callable[[int, FetchRequest], FetchReply] = _no_group,
        wall_ms: Callable[[], int] | None = None,
        on_clock: Callable[[int, int], None] = _no_clock,
        on_copy: Callable[[str], None] = _ignore,
        on_removed: Callable[[str], None] = _ignore,
        dial: Callable[[int, str], Any] | None = None,
        tls: PeerTls | None = None,
    ) -> None:
        """Set up streams and calls. `who`: how this node presents itself and judges others; without it by cluster and
        ids alone. `on_hello`: a peer was let in. `on_copy(why)`: a peer knows a later start of this node's data.
        `on_removed(why)`: a peer says that this node was removed.
        `serve_fetch(node, request)`: a piece of a snapshot for a peer. `on_contact`: see `MinorityDetector`. `tls`: how
        nodes prove that they are nodes; None: they do not."""
        self.self_id = self_id
        self._bind = bind
        self._addresses = {node: address for node, address in peers.items() if node != self_id}
        self._hints = LeaderHintTable(on_leader)
        self._on_up, self._on_down, self._types = on_up, on_down, types
        self._peers = {node: _Peer(node, on_up, on_down) for node in self._addresses}
        self._who = who or Who(cluster, self_id, frozenset(self._addresses))
        self._contact = MinorityDetector(self._peers.keys(), on_contact)
        self._wall_ms = wall_ms
        self._on_copy = on_copy
        self._on_removed = on_removed
        self._dial = dial or (lambda node, address: DiallerEnd(node, address, tls))
        self._tls = tls
        self._who.tls = tls
        self._links = {node: self._link(node) for node in self._addresses}
        self._inbound = InboundLinks(
            who=self._who,
            on_hello=on_hello,
            on_change=lambda node, is_open: self._changed(node, inbound=is_open),
            on_messages=on_messages,
            on_hints=self._hints.merge,
            on_clock=on_clock,
        )
        self._services = Services(
            who=self._who, types=types, partitions=partitions, admin=admin, serve_fetch=serve_fetch,
            callers=self.callers,
        )  # fmt: skip
        self._clients = {node: self._new_client(node) for node in self._addresses}
        self._server: Any = None
        self._shared_port = SharedPort(serve=partial(serve_stream, self._inbound.serve), tls=tls)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dialling: dict[NodeId, asyncio.Task[None]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._hints_scheduled = False
        self._begun_s = 0.0
        self.port = 0  # bound; differs from the configured one when that is 0

    # -- life

    async def start(self, *, dials: bool = True) -> None:
        """Listen, and begin to dial the peers, or leave that to `open_streams`. Raises AddressInUse."""
        self._server = await serve_calls(self._shared_port.grpc_address, self._who, self._services, self._tls)
        try:
            self.port = await self._shared_port.listen(self._bind)
        except OSError as error:
            raise AddressInUse(
                f"cannot listen on {self._bind} for other nodes: {error}. Another process has the port, or the host "
                f"has no such address; stop it, or correct cluster.peers for node {self.self_id}"
            ) from error
        if dials:
            self.open_streams()

    def open_streams(self) -> None:
        """Begin to dial the peers, and to watch for silent ones. Once it is done, this does nothing."""
        if self._watching is not None:
            return
        self._loop = loop = asyncio.get_running_loop()
        self._begun_s = loop.time()
        self._contact.begin(loop.time())
        for node in self._links:
            self._begin_to_dial(node)
        self._watching = loop.create_task(self._watch(), name="peer-liveness")

    async def stop(self) -> None:
        """Close all streams (peers notice at once), then the port."""
        tasks = [*self._dialling.values(), *([self._watching] if self._watching is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._ending, return_exceptions=True)
        self._dialling.clear()
        self._watching = None
        for client in self._clients.values():
            await client.close()
        self._shared_port.stop_listening()
        self._inbound.end_all()
        if self._server is not None:
            await self._server.stop(options.STOP_GRACE_S)
            self._server = None
        await self._shared_port.close()

    # -- peers

    @property
    def peers(self) -> KeysView[NodeId]:
        return self._peers.keys()

    def add_peer(self, node: NodeId, address: str) -> None:
        """Let a node in from now on, and dial it."""
        assert node not in (self.self_id, *self._peers), node
        self._addresses[node] = address
        self._peers[node] = _Peer(node, self._on_up, self._on_down)
        self._links[node] = self._link(node)
        self._clients[node] = self._new_client(node)
        self._who.known |= {node}
        if self._loop is not None:
            self._contact.add(node, self._loop.time())
            self._begin_to_dial(node)
        else:
            self._contact.add(node, 0.0)  # `begin` says from when on
        log.info("node %d at %s is a peer now", node, address)

    def forget_peer(self, node: NodeId) -> None:
        """End what there is with a node that is no member any more. It is not let in again."""
        self._who.known -= {node}
        self._inbound.end_removed(node)
        task = self._dialling.pop(node, None)
        if task is not None:
            task.cancel()
        self._peers.pop(node).end()
        del self._links[node], self._addresses[node]
        self._clients[node].refuse(f"node {node} is no member of the cluster any more")
        closing = asyncio.get_running_loop().create_task(self._clients[node].close(), name=f"leave-{node}")
        self._ending.add(closing)
        closing.add_done_callback(self._ending.discard)
        self._contact.forget(node, asyncio.get_running_loop().time())
        log.info("node %d is a peer no more", node)

    def _begin_to_dial(self, node: NodeId) -> None:
        assert self._loop is not None
        self._dialling[node] = self._loop.create_task(self._links[node].run(), name=f"link-to-{node}")

    def _new_client(self, node: NodeId) -> GrpcPeerClient:
        tls = self._tls
        return GrpcPeerClient(
            node,
            partial(self._who.hello_to, node),
            self._address(node),
            self._types,
            open_channel=None if tls is None else partial(tls.channel, node),
            version=lambda: None if tls is None else tls.version,
        )

    # -- Raft

    def send(self, node: NodeId, messages: Sequence[Encodable]) -> None:
        """Send to the peer, now or when there is room; dropped when there is no stream to it, or it is no peer."""
        link = self._links.get(node)
        if link is not None:
            link.send(messages)

    def is_up(self, node: NodeId) -> bool:
        return node == self.self_id or (node in self._peers and self._peers[node].up)

    def waiting_bytes(self, node: NodeId) -> int:
        """Bytes that were handed over for a peer and have not left."""
        return self._links[node].backlog if node in self._links else 0

    def in_touch(self, node: NodeId) -> bool:
        """Up, and heard of late."""
        return node == self.self_id or self._contact.in_touch(node)

    def lost_s(self, node: NodeId) -> float:
        """Seconds that this node has been out of touch with the other one."""
        return self._contact.lost_s(node, asyncio.get_running_loop().time())

    @property
    def is_cut_off(self) -> bool:
        """The others could do without this node, and it would not know (`minority_detection.py`)."""
        return self._contact.cut_off

    @property
    def out_of_touch(self) -> list[NodeId]:
        """The nodes that do not answer this one."""
        return sorted(node for node in self._peers if not self._contact.in_touch(node))

    @property
    def is_alone(self) -> bool:
        """Cut off, and in touch with nobody."""
        return self.is_cut_off and len(self.out_of_touch) == len(self._peers)

    def set_address(self, node: NodeId, address: str) -> None:
        """Change a peer's address, from the next connection on."""
        if node not in self._addresses:
            raise KeyError(f"node {node} is not a peer")
        self._addresses[node] = address

    def stranger(self, node: NodeId) -> int | None:
        """The incarnation of a process that calls itself `node` and was refused, because the cluster knows it by other
        data."""
        return self._who.stranger(node)

    def callers(self) -> Callers:
        """Nodes that this one lets in, and those that it refuses."""
        accepted = {self.self_id, *(node for node, peer in self._peers.items() if peer.inbound)}
        return Callers(frozenset(accepted), frozenset(filter(self._who.is_refused, self._peers)))

    @contextlib.contextmanager
    def admitting(self, node: NodeId, incarnation: int) -> Iterator[None]:
        """Let `node` in with this incarnation until the block ends, whatever the cluster knows: only for the other one
        of two nodes, see `handshake`."""
        assert node in self._addresses, (node, set(self._addresses))
        self._who.admitted[node] = incarnation
        self._inbound.end_strangers()
        try:
            yield
        finally:
            self._who.admitted.pop(node, None)  # two operators may have asked for the same
            self._inbound.end_strangers()

    def registrations_changed(self) -> None:
        self._inbound.end_strangers()

    def tell_active_version(self, version: int) -> None:
        """Tell all peers before anything that is said from now on. Streams that are opened later begin with it."""
        for link in self._links.values():
            link.send_active(version)

    def heard_for_s(self, node: NodeId) -> float:
        """Seconds that the present process of a node has been heard here without a break; 0.0: it is not."""
        now_s = asyncio.get_running_loop().time()
        if node == self.self_id:
            return now_s - self._begun_s
        return self._inbound.heard_for_s(node, now_s) if self.is_up(node) else 0.0

    def start_of(self, node: NodeId) -> DirectoryStart | None:
        """The start of a node's data that is heard here; None: it is not heard."""
        return self._who.start if node == self.self_id else self._inbound.start_of(node)

    # -- leaders

    def set_leader(self, group: int, term: int, leader: NodeId | None) -> None:
        """Tell all peers, with the next loop turn, which leader the replica on this node names."""
        self._hints.set_own(group, term, leader)
        if not self._hints_scheduled:
            self._hints_scheduled = True
            asyncio.get_running_loop().call_soon(self._tell_changed)

    def drop_group(self, group: int) -> None:
        """The group was deleted."""
        self._hints.forget(group)

    def leave_group(self, group: int) -> None:
        """Speak of a group no more, since it goes on without a replica on this node."""
        self._hints.leave(group)

    def leader_of(self, group: int) -> NodeId | None:
        """Leader of a group, as far as heard; None also when that node is down."""
        leader = self._hints.leader_of(group)
        return leader if leader is not None and self.is_up(leader) else None

    # -- questions to peers

    def client(self, node: NodeId) -> PeerClient:
        """The way to ask another node; one that is no peer any more answers nothing. Raises Unavailable if it never
        was one."""
        client = self._clients.get(node)
        if client is None:
            raise Unavailable(f"node {node} is no member of the cluster, as far as is known here", sent=False)
        return client

    def status(self) -> dict[int, dict[str, Any]]:
        """State of each peer, and why it is not up, for people."""
        return {
            node: {
                "address": self._addresses[node],
                "up": peer.up,
                "outbound": peer.outbound,
                "inbound": peer.inbound,
                "backlog_bytes": self._links[node].backlog,
                "dropped_messages": self._links[node].dropped,
                "last_error": self._links[node].last_error,
            }
            for node, peer in self._peers.items()
        }

    # -- inside

    def _address(self, node: int) -> Callable[[], str]:
        return lambda: self._addresses.get(node, "")

    def _link(self, node: int) -> OutboundLink:
        def on_change(is_open: bool) -> None:
            if node not in self._links:
                return  # it is no peer any more
            if is_open and (active := self._who.active()):
                self._links[node].send_active(active)  # it may have risen since Hello was written
            if is_open:
                self._tell_clock(self._links[node])
            if is_open and (hints := self._hints.all_own()) is not None:
                self._links[node].send_hints(hints)
            self._changed(node, outbound=is_open)

        hello = partial(self._who.hello_to, node)
        return OutboundLink(
            node, hello, self._address(node), on_change, self._dial,
            on_copy=self._on_copy, on_removed=self._on_removed,
        )  # fmt: skip

    def _tell_clock(self, link: OutboundLink) -> None:
        if self._wall_ms is not None:
            link.send_clock(Clock(wall_ms=self._wall_ms()))

    def _tell_changed(self) -> None:
        self._hints_scheduled = False
        if (hints := self._hints.take_changed()) is not None:
            for link in self._links.values():
                link.send_hints(hints)

    def _changed(self, node: int, *, outbound: bool | None = None, inbound: bool | None = None) -> None:
        peer, loop = self._peers.get(node), self._loop
        if peer is None:
            return
        peer.change(outbound=outbound, inbound=inbound)
        if loop is None:
            return
        if peer.up:
            self._look()  # a node that comes now must not be sent away for a tick more
        else:
            self._contact.lost(node, loop.time())
            loop.call_later(options.CUT_OFF_S, self._look)  # or the next tick's look comes late by as much as a tick

    def _look(self, late_s: float = 0.0) -> None:
        now_s = asyncio.get_running_loop().time()
        self._contact.look(partial(self._is_heard, now_s), now_s, late_s)

    def _is_heard(self, now_s: float, node: int) -> bool:
        heard_s = self._inbound.heard_s(node)
        return self._peers[node].up and heard_s is not None and now_s - heard_s <= options.OUT_OF_TOUCH_S

    async def _watch(self) -> None:
        now = asyncio.get_running_loop().time
        due_heartbeat = due_hints = last = now()
        while True:
            await asyncio.sleep(options.TICK_S)
            current = now()
            late_s = max(0.0, current - last - 2 * options.TICK_S)
            self._inbound.postpone(late_s, current)
            last = current
            self._inbound.end_silent(current)
            self._look(late_s)
            if current >= due_hints:
                due_hints = current + options.HINT_PERIOD_S
                for link in self._links.values():
                    self._tell_clock(link)
                if (hints := self._hints.all_own()) is not None:
                    for link in self._links.values():
                        link.send_hints(hints)
            if current >= due_heartbeat:
                due_heartbeat = current + options.HEARTBEAT_S
                for link in self._links.values():
                    link.heartbeat()
