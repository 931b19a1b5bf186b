"""One node, composed: the only place that knows all the parts.

Start: store, groups, network, turns, listeners, registration. Faults of the data that can be found are found before the
network: until then no other node has heard of this start, and it does not count (`cluster/stale_copy_detection.py`).
Stop: the same backwards, so that clients are told before groups close and nothing is acknowledged by a node that has
begun to go. Whoever stops a node waits for its process: a step that does not end is named in the log, and left behind.
Only the disk is waited for without a bound. The rule: after an error in a turn the node stops without another write;
its memory may be ahead of its disk, and the other nodes go on without it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import secrets
import time
from collections.abc import Coroutine, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from cluster.discovery import Member
from cluster.metadata import KEPT_ENTRIES, CommandProposer, MetadataMachine, MetadataView, register_node
from cluster.metadata.metadata_pb2 import Command
from cluster.raft import METADATA_GROUP, FetchRequest, MultiRaft, RaftGroup, RaftOptions
from cluster.raft.membership.configuration import FOUNDING_BIRTH
from cluster.rpc import AddressInUse, Hello, Members, PeerNetwork, Who
from cluster.stale_copy_detection import STARTS_REMEMBERED, DirectoryStart
from node import peer_codec
from node.admin.administration import Administration
from node.admin.users_and_grants import AccessAdministration
from node.balancing.balance_administration import BalanceAdministration
from node.balancing.balancer import Balancer
from node.balancing.load_reports import LoadReports
from node.broker import NodeBroker
from node.checkpoint_store.blob_server import BlobServer
from node.checkpoint_store.group_blobs import GroupBlobs
from node.client_transactions.coordinator_lookup import Coordinators
from node.client_transactions.transactional_ids import TransactionManager
from node.cluster_clock import ClusterClock
from node.config import Config, ListenerSection, parse_address
from node.listener import Listener, ListenerConfig
from node.listener.limits.fair_scheduling import Turns
from node.listener.limits.garbage_collection import GarbageCollection
from node.listener.limits.memory_budgets import Accounts
from node.members.known_peers import KnownPeers
from node.members.metadata_members import MetadataMembers
from node.monitoring import Drain, Health, LoopWatch, Metrics, MonitoringServer, NodeParts, StartupState
from node.movement.client_waits import ClientWaits
from node.movement.driver import MoveDriver
from node.movement.lagging_leaders import hand_over_if_lagging
from node.movement.pace import CopyPace
from node.movement.segment_cleaner import SegmentCleaner
from node.partition.consumer_groups.assignor import Assignor
from node.raft_loop import RaftLoop
from node.replica_manager import ReplicaManager
from node.routing_events import RoutingEvents
from node.startup.bootstrap import Bootstrap
from node.startup.clock_check import watch_clock
from node.startup.data_migration import DataMigration
from node.startup.discovery import NodeDiscovery
from node.startup.first_user import have_first_user
from node.startup.listener_security import Gates, peer_tls_of, tls_of
from node.startup.persisted_clock import ClockMemory
from node.startup.registration import RackNote, await_metadata, await_vote, confirm, register
from node.startup.stored_boot_counters import StoredStarts
from node.storage import DiskOptions, NodeIdentity, NodeRemoved, OlderCopy, StorageError, Store
from node.transaction_coordinator.coordinator_commands import NodeStart

log = logging.getLogger("holdfast.node")

DRAIN_AT_STOP_S = 1.5
"""Time for leaderships to move at a stop: a transfer takes some round trips; the rest is left to an election."""

STOP_STEP_S = 15.0
"""Time for a step of a stop. The longest is that of a listener, whose connections have some seconds for their last
words."""


class NodeStopped(Exception):
    """Raised when the node ended itself to protect the data; the cause says why and what to do."""


class _Monotonic:
    monotonic = staticmethod(time.monotonic)


class _AdminForPeers:
    """Administration for peers: a forwarded request is decided here, or refused, never passed on. Implements
    `cluster.rpc.AdminHost`."""

    def __init__(
        self, proposer: CommandProposer, replicas: ReplicaManager, view: MetadataView, multiraft: MultiRaft
    ) -> None:
        self.execute = proposer.execute_here
        self.confirm = proposer.confirm_here
        self.replica_states = replicas.states
        self.report = replicas.report
        self.hand_over = partial(hand_over_if_lagging, multiraft)
        self._view = view

    def registers(self, node: int, command: bytes) -> bool:
        try:
            parsed = Command.FromString(command)
        except DecodeError:
            return False
        return parsed.HasField("register_node") and parsed.register_node.node == node

    def members(self) -> Members:
        addresses = {node: record.rpc_address for node, record in self._view.nodes.items()}
        return Members(self._view.cluster_number, addresses)


class Node:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.node_id = config.node.id
        self._fatal: asyncio.Future[BaseException] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._listeners: list[Listener] = []
        self._composed = False
        self._checkpoint_store: BlobServer | None = None
        self._version = version("holdfast")
        self._discovery = NodeDiscovery(config, self._version)
        self._monitoring = MonitoringServer(StartupState(lambda: self._discovery.waiting_for))
        self._fetching: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start the node. Returns when clients are served and the cluster has heard of this node.

        Raises:
            DiscoveryError: this node cannot be part of the cluster that it found.
            StorageError: the data is damaged, foreign, in use, or the disk is full.
            AddressInUse: a configured address cannot be listened on.
        """
        self._fatal = asyncio.get_running_loop().create_future()
        self._migration = DataMigration(Path(self.config.node.data_dir))
        await self._start_monitoring()
        self._addresses = dict(await self._discovery.join())
        self._compose()
        self._composed = True
        self._discovery.subscribe(self._addresses_changed)
        self._multiraft.replay(self._metadata)
        self._follow_members()
        if not self._peers.could_tell():
            self._multiraft.let_in()
        self._replicas.reconcile()
        self._raise_if_failed()
        self._disk.count_start(STARTS_REMEMBERED)
        self._who.start = self._own_start()
        await self._network.start(dials=self.node_id in self._view.nodes or bool(self._founders))
        self._loop.start()
        self._watch.start()
        self._garbage.start()
        for listener, section in zip(self._listeners, self.config.listener, strict=True):
            try:
                await listener.start()
            except OSError as error:
                raise AddressInUse(
                    f"cannot listen on {section.bind} for clients: {error}. Another process has the port, or the host "
                    f"has no such address; stop it, or correct listener.{section.name}.bind"
                ) from error
            if listener.gate.is_barred and self._gates.first_user is None:
                log.warning(
                    "nobody can log in at %s: the cluster knows no users yet, and without a credential clients are let "
                    'in on loopback only. Add a user through such a listener, or set security.anonymous = "always"',
                    section.bind,
                )
        await self._start_checkpoint_store()
        self._health.serving = True
        self._tasks.append(asyncio.create_task(self._replicas.keep_retention(), name="retention"))
        self._tasks.append(asyncio.create_task(self._replicas.keep_time(), name="time"))
        self._tasks.append(asyncio.create_task(self._cleaner.run(), name="segments"))
        self._tasks.append(asyncio.create_task(self._migrate(), name="migration"))
        self._tasks.append(asyncio.create_task(self._confirm_metadata(), name="confirm metadata"))
        self._tasks.append(asyncio.create_task(self._drive_moves(), name="moves"))
        self._tasks.append(asyncio.create_task(self._pace.run(), name="pace of copies"))
        self._tasks.append(asyncio.create_task(self._members.run(), name="metadata members"))
        self._tasks.append(asyncio.create_task(self._balancer.run(), name="balance"))
        watching = watch_clock(self._clock, self._clock_memory, self._drain, self._failed)
        self._tasks.append(asyncio.create_task(watching, name="clock"))
        registering = asyncio.create_task(self._register(), name="register")
        self._tasks.append(registering)
        await _first_of(registering, self._fatal)
        self._raise_if_failed()
        registering.result()

    def ready_line(self) -> str:
        addresses = [str(section.advertised) for section in self.config.listener]
        return json.dumps({"event": "ready", "node": self.node_id, "amqp": addresses})

    async def run_until(self, stop: asyncio.Event) -> None:
        """Run until asked to stop. Raises NodeStopped when the node has to stop itself."""
        assert self._fatal is not None
        asked = asyncio.create_task(stop.wait())
        await _first_of(asked, self._fatal)
        asked.cancel()
        self._raise_if_failed()

    def _raise_if_failed(self) -> None:
        if self._fatal is not None and self._fatal.done():
            error = self._fatal.result()
            raise NodeStopped(f"node {self.node_id} stopped itself: {error}") from error

    async def stop(self) -> None:
        """Stop, however far `start` has come."""
        await _step("discovery", self._discovery.close())
        if not self._composed:
            await _step("monitoring", self._monitoring.stop())
            return
        self._rack.stop()
        ending = [*self._tasks, *self._fetching]
        for task in ending:
            task.cancel()
        for task in ending:
            await _wait_for(f"task {task.get_name()!r}", task)
        self._health.serving = False
        if self._fatal is not None and not self._fatal.done():
            await _step("leaderships", self._drain.leave(DRAIN_AT_STOP_S))
        if self._checkpoint_store is not None:
            await _step("the checkpoint store", self._checkpoint_store.stop())
        for listener in self._listeners:
            await _step(f"listener {listener.config.name}", listener.stop())
        await _step("transactions", self._transactions.close())
        self._watch.stop()
        self._garbage.stop()
        await self._loop.stop()
        if self._fatal is not None and not self._fatal.done():
            self._replicas.close()
            self._multiraft.close()
        await _step("the network to other nodes", self._network.stop())
        await _step("monitoring", self._monitoring.stop())
        self._gates.close()
        self._disk.close()
        log.info("node %d has stopped", self.node_id)

    # -- composition

    def _compose(self) -> None:
        """Compose the parts from the disk upwards: later ones are given the earlier ones, or are attached to them."""
        self._routing_events = RoutingEvents()
        self._accounts, self._turns, self._watch, self._garbage = Accounts(), Turns(), LoopWatch(), GarbageCollection()
        clock = _Monotonic()
        self._compose_raft(clock)
        self._compose_network()
        self._loop = RaftLoop(self._multiraft, self._disk, clock, self._replicas.input, self._failed)
        self._replicas.on_failed = self._failed
        self._compose_pace(clock)
        execute, features = self._proposer.execute, self._migration.features
        self._moves = MoveDriver(
            self._multiraft, self._view, execute, self._network, features, lambda: self._metadata.is_leader
        )
        self._routing_events.subscribe(self._moves.look)
        self._replicas.move_status = self._moves.status
        self._drain = Drain(self.node_id, self._multiraft, self._network, self._routing_events)
        self._compose_monitoring()
        self._compose_listeners(clock)
        self._view.on_change(self._routing_events.ring)
        self._routing_events.subscribe(self._follow_members)
        self._routing_events.subscribe(self._replicas.reconcile)
        self._routing_events.subscribe(self._network.registrations_changed)
        self._routing_events.ring()

    def _compose_raft(self, clock: _Monotonic) -> None:
        """Compose the disk, the groups on it, and the view of the metadata group."""
        config, storage, features = self.config, self.config.storage, self._migration.features
        if config.cluster.join:
            self._migration.begin_joining()
        identity = NodeIdentity(config.cluster.name, self.node_id, self._discovery.founders)
        disk_options = DiskOptions(direct=storage.direct, reserve_bytes=storage.min_free_bytes)
        self._disk = Store(Path(config.node.data_dir), identity, disk_options, version=features.version)
        self._founders = founders = self._disk.identity.members  # as they were when the directory was made
        self._clock_memory = ClockMemory(self._disk)
        self._clock = ClusterClock(len(self._addresses), _wall_ms, time.monotonic, self._clock_memory.noted_ms)
        options = RaftOptions(
            durability=config.storage.durability,
            eager_appends=True,
            tail_cache_bytes=storage.cache_bytes,
            trim_wait_s=config.storage.retention_waits_s,
        )
        self._multiraft = MultiRaft(
            self.node_id,
            self._disk,
            clock,
            random.Random(),
            lambda node, m: self._network.send(node, m),
            options,
            alone=False,
            active_version=lambda: features.version,
        )
        machine = MetadataMachine(features.known)
        self._view = MetadataView(machine)
        self._metadata = self._multiraft.open_group(
            METADATA_GROUP, founders, machine, mute=True, keep_entries=KEPT_ENTRIES,
            birth=FOUNDING_BIRTH if founders else None,
        )  # fmt: skip
        self._view.on_change(lambda: self._rise(self._view.active_version))
        self._rise(self._view.active_version)
        self._proposer = CommandProposer(
            self._metadata,
            self.node_id,
            lambda node, command, timeout_s: self._network.client(node).execute(command, timeout_s),
            lambda node, timeout_s: self._network.client(node).confirm(timeout_s),
            lambda: self._network.is_cut_off,
            lambda: () if self.node_id in self._metadata.members else self._network.peers,
        )
        self._rack = RackNote(self.node_id, config.node.rack, self._view, features, self._proposer)
        self._view.on_change(self._rack.look)
        self._replicas = ReplicaManager(
            self.node_id,
            self._multiraft,
            self._disk,
            self._view,
            self._routing_events,
            min_free_bytes=config.storage.min_free_bytes,
            incarnation=self._disk.identity.incarnation,
            now_ms=self._clock.now_ms,
            lived_ms=self._clock.lived_ms,
            features=features,
        )
        self._bootstrap = Bootstrap(self._metadata, frozenset(founders) - {self.node_id}) if founders else None

    def _compose_pace(self, clock: _Monotonic) -> None:
        waits = ClientWaits(self._multiraft.groups, clock.monotonic)
        self._pace = CopyPace(
            self._multiraft.copies,
            self._pace_limit,
            lambda: (self._loop.turns, self._loop.turns_s),
            waits,
            clock.monotonic,
        )
        self._pace.look()
        self._cleaner = SegmentCleaner(
            self._disk,
            self._multiraft.copies.into,
            clock.monotonic,
            is_full=lambda: self._replicas.full is not None,
            erase_leftovers=self._replicas.erase_leftovers,
            on_failed=self._failed,
        )
        self._replicas.on_erased = self._cleaner.ask

    def _pace_limit(self) -> int:
        return min(self._view.balance.pace_bytes_per_s, self.config.storage.catch_up_bytes_per_s)

    def _compose_network(self) -> None:
        """Compose the network to the other nodes: what they are told and may ask for."""
        name = self.config.cluster.name
        self._who = Who(
            name,
            self.node_id,
            frozenset(self._addresses) - {self.node_id},
            self._disk.identity.incarnation,
            self._founders,
            self._view.incarnation,
            lambda: self._metadata.remembers_nothing,
            registered_start=self._view.start,
            memory=StoredStarts(self._disk, self._failed),
            versions=self._migration.features.known,
            active=lambda: self._migration.features.heard,
            on_active=self._rise,
            announced=lambda: self._view.announced,
            removed=self._view.removed,
            cluster_id=lambda: self._view.cluster_number or self._discovery.cluster_number,
        )
        self._network = PeerNetwork(
            self.node_id,
            name,
            self._addresses[self.node_id],
            self._addresses,
            on_messages=self._multiraft.deliver,
            on_up=self._peer_up,
            on_down=self._peer_down,
            types=peer_codec,
            partitions=self._replicas,
            admin=_AdminForPeers(self._proposer, self._replicas, self._view, self._multiraft),
            on_leader=lambda group: self._routing_events.ring(),
            on_contact=self._routing_events.ring,
            who=self._who,
            on_copy=self._is_copy,
            on_removed=lambda _: self._is_removed(),
            wall_ms=_wall_ms,
            on_clock=self._clock.heard,
            on_hello=self._heard_hello,
            serve_fetch=self._multiraft.serve_fetch,
            tls=peer_tls_of(self.config.cluster),
        )
        self._migration.features.on_rise.append(self._network.tell_active_version)
        self._multiraft.on_fetch = self._fetch
        self._multiraft.on_answers = self._turns.flush
        self._multiraft.room.waiting_bytes = self._network.waiting_bytes
        self._replicas.attach(self._network)
        self._metadata.on_role_change = self._metadata_role_changed
        self._peers = KnownPeers(
            self.node_id,
            self._founders,
            self._addresses,
            (self.config.rpc_addresses if self.config.cluster.join else self._addresses).keys(),
            self._view,
            self._network,
            self._forget_node,
            self._nodes_changed,
        )
        self._members = MetadataMembers(
            self.node_id,
            self._metadata,
            self._view,
            self._network,
            self._proposer,
            self._migration.features,
            self._failed,
        )

    def _compose_listeners(self, clock: _Monotonic) -> None:
        """Compose the listeners, and administration behind them."""
        self._gates = Gates(self.config.security, self._view)
        reports = LoadReports(self.node_id, self._view, self._network, self._replicas.report, clock.monotonic)
        self._administration = administration = Administration(
            self.node_id,
            self._metadata,
            self._proposer,
            self._view,
            self._network,
            self._replicas.leader_of,
            self._routing_events,
            self._drain,
            self._health,
            self._replicas.states,
            self._replicas.repair,
            reports.gather,
            self._migration.features,
        )
        features = self._migration.features
        self._balancer: Balancer = Balancer(self._metadata, self._view, self._proposer, reports, features)
        balancing = BalanceAdministration(
            self._view,
            self._proposer,
            self._balancer,
            features,
            self._routing_events,
            administration.current,
            self.config.storage.catch_up_bytes_per_s,
        )
        administration.serve(balancing.operations)
        coordinators = Coordinators(self._view, self._proposer.execute, self._routing_events.until)
        self._transactions = TransactionManager(self.node_id, self._replicas.calls, coordinators, self._start_of_ids)
        self._access = AccessAdministration(
            self._proposer,
            self._view,
            self._routing_events,
            administration.current,
            configured=self._gates.names_administrators,
            box=self._gates.box,
        )
        for section in self.config.listener:
            self._listeners.append(self._listener(section, administration))
        self._replicas.on_assign = Assignor(self._listeners[0].broker, clock.monotonic).assign

    def _compose_monitoring(self) -> None:
        parts = NodeParts(
            node_id=self.node_id,
            cluster=self.config.cluster.name,
            version=self._version,
            multiraft=self._multiraft,
            loop=self._loop,
            watch=self._watch,
            disk=self._disk,
            view=self._view,
            metadata=self._metadata,
            replicas=self._replicas,
            network=self._network,
            drain=self._drain,
            clock=self._clock,
            migration=self._migration,
            listeners=self._listeners,
        )
        self._health = Health(parts)
        self._monitoring.attach(Metrics(parts, self._health), self._health)

    async def _start_monitoring(self) -> None:
        """Start monitoring first, so that a node that waits can say for what."""
        bind = self.config.monitoring.bind
        if not bind:
            return
        try:
            await self._monitoring.start(parse_address(bind, "monitoring.bind"))
        except OSError as error:
            raise AddressInUse(
                f"cannot listen on {bind} for monitoring: {error}. Another process has the port, or the host has no "
                "such address; stop it, or correct monitoring.bind"
            ) from error

    async def _start_checkpoint_store(self) -> None:
        bind = self.config.checkpoints.bind
        if not bind:
            return
        address = parse_address(bind, "checkpoints.bind")
        blobs = GroupBlobs(self._view, self._listeners[0].broker.handle)
        store = BlobServer(blobs, *self._gates.for_checkpoints(address.host))
        try:
            await store.start(address)
        except OSError as error:
            raise AddressInUse(
                f"cannot listen on {bind} for checkpoints: {error}. Another process has the port, or the host has no "
                "such address; stop it, or correct checkpoints.bind"
            ) from error
        self._checkpoint_store = store

    def _listener(self, section: ListenerSection, administration: Administration) -> Listener:
        broker = NodeBroker(
            self.node_id,
            f"{self.config.cluster.name}-{self.node_id}",
            section,
            self._view,
            self._replicas,
            self._network,
            administration,
            self._routing_events,
            self._transactions,
            self._access,
        )
        bind, tls = section.bind_address, tls_of(section)
        return Listener(
            broker,
            ListenerConfig(
                name=section.name,
                bind_host=bind.host,
                bind_port=bind.port,
                redirect=section.redirect,
                max_message_size=section.max_message_size,
                max_connections=section.max_connections,
                idle_timeout_s=section.idle_timeout_s,
                group_full=section.group_full,
                group_hold_s=section.group_hold_s,
                tls=tls,
                tls_mode="on" if section.tls == "off" else section.tls,
                proxies=section.proxy_networks,
            ),
            self._gates.gate(section, tls),
            self._accounts,
            self._turns,
        )

    # -- what happens

    def _addresses_changed(self, members: Mapping[int, Member]) -> None:
        """Dial moved nodes at their new addresses; a node that does not run at the moment keeps its old one."""
        for node, member in members.items():
            if node in self._network.peers:
                self._addresses[node] = member.rpc_address
                self._network.set_address(node, member.rpc_address)

    def _heard_hello(self, hello: Hello) -> None:
        if self._bootstrap is not None:
            self._bootstrap.heard(hello.node, is_new=hello.is_new)

    def _follow_members(self) -> None:
        """Take in which nodes the metadata know, this one included."""
        view = self._view
        if view.removed(self.node_id) is not None:
            self._is_removed()
            return
        self._peers.follow()
        if self._is_first_life():
            self._metadata.vote_as_first_life()

    def _is_first_life(self) -> bool:
        """True if this is the first start of the first directory that this node ever had: it has forgotten nothing."""
        known, identity = self._view.nodes.get(self.node_id), self._disk.identity
        is_first = known is not None and (known.incarnation, known.readmissions) == (identity.incarnation, 0)
        return is_first and identity.boot == 1 and not self._founders

    def _forget_node(self, node: int) -> None:
        self._multiraft.forget_node(node)
        self._clock.forget(node)

    def _nodes_changed(self, nodes: int) -> None:
        self._clock.nodes = nodes

    def _is_removed(self) -> None:
        """Stop for good: this node is no member of the cluster any more."""
        if self._fatal is not None and self._fatal.done():
            return
        try:
            self._disk.note_removed()
        except StorageError as error:
            self._failed(error)
        else:
            self._failed(NodeRemoved(self._disk.path, self.node_id))

    def _failed(self, error: BaseException) -> None:
        assert self._fatal is not None
        told = isinstance(error, StorageError)  # it says all there is to say; anything else is a defect to be found
        log.critical("the node stops: %s", error, exc_info=None if told else error)
        if not self._fatal.done():
            self._fatal.set_result(error)

    def _own_start(self) -> DirectoryStart:
        return DirectoryStart(self._disk.identity.boot, self._disk.identity.marks)

    def _start_of_ids(self) -> NodeStart:
        """The start of the node, as coordinators note it with the transactional ids that are held here."""
        return NodeStart(self.node_id, self._disk.identity.incarnation, self._disk.identity.boot)

    def _is_copy(self, found: str) -> None:
        """Stop for good: a peer knows a later start of these data, so neither this process nor a later one may count as
        one that remembers."""
        try:
            self._disk.note_copy(found)
        except StorageError as error:
            self._failed(error)
        else:
            self._failed(OlderCopy(self._disk.path, found))

    def _rise(self, version: int) -> None:
        """Take in the active version, from the metadata inside the turn that applies it, or from a peer."""
        try:
            self._migration.features.rise(version)
        except StorageError as error:
            self._failed(error)

    async def _confirm_metadata(self) -> None:
        """Let replicas be opened for the first time, and erased, once the metadata here are known to be current."""
        await confirm(self._proposer)
        self._replicas.metadata_are_current()

    async def _drive_moves(self) -> None:
        try:
            await self._moves.run()
        except Exception as error:  # noqa: BLE001  without this moves would stand still unnoticed
            self._failed(error)

    async def _migrate(self) -> None:
        try:
            await self._migration.run(self._multiraft, self._disk)
        except Exception as error:  # noqa: BLE001  a node that cannot write its data must not go on
            self._failed(error)

    def _peer_up(self, node: int) -> None:
        self._multiraft.peer_up(node)
        self._loop.wake()
        self._routing_events.ring()

    def _peer_down(self, node: int) -> None:
        self._multiraft.peer_down(node)
        self._loop.wake()
        self._routing_events.ring()

    def _fetch(self, node: int, request: FetchRequest) -> None:
        task = asyncio.get_running_loop().create_task(self._fetched(node, request), name=f"fetch-from-{node}")
        self._fetching.add(task)
        task.add_done_callback(self._fetching.discard)

    async def _fetched(self, node: int, request: FetchRequest) -> None:
        try:
            reply = await self._network.client(node).fetch(request)
        except ConnectionError as error:  # the group asks again, in its time
            log.info("a piece of a snapshot did not come: %s", error)
        else:
            self._multiraft.deliver_fetched(node, reply)

    def _metadata_role_changed(self, group: RaftGroup) -> None:
        self._proposer.leader_changed()
        self._replicas.role_changed(group)

    async def _register(self) -> None:
        """Register with the cluster, and add its first user if it is to have one. Only then the node says that it is
        ready: clients that wait for that log in next."""
        listeners = {section.name: str(section.advertised) for section in self.config.listener}
        address, incarnation = self._addresses[self.node_id], self._disk.identity.incarnation
        start, drawn = self._own_start(), secrets.randbits(64) or 1
        command = register_node(
            self.node_id,
            address,
            listeners,
            incarnation,
            start,
            cluster_id=drawn,
            versions=self._migration.features.known,
            joins=not self._founders,
        )
        await register(command, self._proposer, listeners, self._waits_for)
        self._network.open_streams()
        await await_metadata(self.node_id, self._view, self._routing_events)
        if (user := self._gates.first_user) is not None:
            await have_first_user(user, self._proposer, self._view, self._administration.current)
        self._health.registered = True
        await await_vote(self.node_id, self._metadata)

    def _waits_for(self) -> list[int]:
        return [] if self._bootstrap is None else self._bootstrap.waits_for()


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


async def _step(what: str, work: Coroutine[Any, Any, None]) -> None:
    """Take a step of the stop."""
    step = asyncio.get_running_loop().create_task(work)
    await _wait_for(what, step)
    if step.done():
        step.result()


async def _wait_for(what: str, task: asyncio.Task[None]) -> None:
    """Wait for the end of a task, and go on if it does not come: what it holds goes with the process."""
    await asyncio.wait({task}, timeout=STOP_STEP_S)
    if not task.done():
        where = ", ".join(f"{Path(one.f_code.co_filename).name}:{one.f_lineno}" for one in task.get_stack(limit=1))
        text = "the stop goes on without the end of %s, for which it has waited %g s (at %s): a defect, report it"
        log.error(text, what, STOP_STEP_S, where)


async def _first_of(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
