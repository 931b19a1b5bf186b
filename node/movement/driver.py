"""Driver of moves: brings each group that this node leads to what the metadata want of it, one step at a time.

The problem: a move takes minutes, and any node may die in the middle of it. The rules: the driver has no memory that a
move depends on; what comes next is asked of the group each time (`RaftGroup.next_step`), a configuration is proposed by
the group's leader alone, and the leader of the moment reports the end of a move until the metadata show it. It looks
when something has changed, and twice a second; ten times, while it leads a group that moves.

A leadership that has to go before the next step is handed over with patience that doubles (`transfer_patience.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from cluster.crash_points import crash_point
from cluster.features import Features
from cluster.metadata import CommandResult, MetadataView, MoveRecord, PartitionRecord, Refusal, finish_move, stall_move
from cluster.metadata.metadata_pb2 import Command
from cluster.raft import ChangeRefused, MultiRaft, NotLeader, Outcome, RaftGroup
from cluster.raft.membership.changes import (
    AppendConfiguration,
    AwaitCondition,
    HandLeadershipOver,
    MoveEnded,
    NextStep,
    Wish,
)
from cluster.raft.membership.configuration import Configuration
from node.movement.lagging_leaders import LaggingLeaders, Peers
from node.movement.transfer_patience import TransferPatience

log = logging.getLogger("holdfast.moves")

LOOK_S = 0.5
LOOK_AT_LED_S = 0.1
"""Seconds between looks: while this node leads a group that moves, it looks for followers that have come near."""

STALLED_AFTER_S = 60.0
"""Time without progress after which a move is called stalled."""

REPORT_AGAIN_S = 1.0
"""Time for a report to show in the metadata here. They may be behind: a report that comes twice does no harm."""

Execute = Callable[[Command], Awaitable[CommandResult]]


@dataclass(frozen=True, slots=True)
class MoveStatus:
    """A move as its group's leader sees it."""

    group: int
    state: str
    """`wished`, `copying`, `near`, `joint`, `cancelling` or `finishing`."""
    waits_for: str
    """Reason why nothing happens now; empty: something does."""
    entries: int
    """Entries that the replica which comes is to have."""
    entries_left: int
    stalled: bool


@dataclass(slots=True)
class _Watched:
    """A move, watched for progress."""

    marks: object = None
    since: float = 0.0
    stalled: bool = False
    progressed: bool = False
    """Progress was seen here, since the move was stalled last."""
    stall_told_at: float = -REPORT_AGAIN_S
    reported_at: float = -REPORT_AGAIN_S
    patience: TransferPatience = field(default_factory=TransferPatience)
    status: MoveStatus | None = None


class MoveDriver:
    def __init__(
        self,
        multiraft: MultiRaft,
        view: MetadataView,
        execute: Execute,
        peers: Peers,
        features: Features,
        leads_metadata: Callable[[], bool],
    ) -> None:
        """`leads_metadata`: this node looks after moves of groups that have no leader."""
        self._leads_metadata = leads_metadata
        self._multiraft = multiraft
        self._view = view
        self._execute = execute
        self._peers = peers
        self._lagging = LaggingLeaders(multiraft, peers)
        self._features = features
        self._changed = asyncio.Event()
        self._watched: dict[int, _Watched] = {}
        self._scan_at = 0.0
        self._reporting: set[asyncio.Task[None]] = set()

    def look(self) -> None:
        """Look soon, since something may have changed."""
        self._changed.set()

    def status(self, group: int) -> MoveStatus | None:
        """State of the move of a group that this node leads; None: it has none."""
        watched = self._watched.get(group)
        return None if watched is None else watched.status

    def statuses(self) -> Iterator[MoveStatus]:
        return (one.status for one in self._watched.values() if one.status is not None)

    async def run(self) -> None:
        """Drive moves, until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                self._changed.clear()
                leads_some = self.drive(loop.time())
                await self._next_look(LOOK_AT_LED_S if leads_some else LOOK_S)
        finally:
            self._lagging.close()
            for task in self._reporting:
                task.cancel()

    async def _next_look(self, at_most_s: float) -> None:
        try:
            async with asyncio.timeout(at_most_s):
                await self._changed.wait()
        except TimeoutError:
            return

    def drive(self, now: float) -> bool:
        """Take the next step of each move in a group that this node leads. Returns whether there is one."""
        if not self._features.active("membership"):
            return False
        moving = {record.group: record for record in self._view.under_way()}
        led = set()
        for number, record in {**self._ahead(now), **moving}.items():
            group = self._multiraft.groups.get(number)
            if group is not None and group.is_leader:
                led.add(number)
                self._drive_one(group, record, self._watched.setdefault(number, _Watched(since=now)), now)
        leads_metadata = self._leads_metadata()
        for number in self._watched.keys() - led - moving.keys():
            del self._watched[number]
        for number in self._watched.keys() - led:
            one = self._watched[number]
            one.status = None
            if not leads_metadata:
                one.since = now  # nobody looks at it here, so no time counts
        watched = moving if leads_metadata else {}
        self._watch_leaderless(watched.values(), led, now)
        self._lagging.look(watched.values(), now)
        return bool(led)

    def _ahead(self, now: float) -> dict[int, PartitionRecord]:
        """Partitions led here whose log is ahead of the metadata: amid a move, or past one. Seldom looked for among
        all, since there are few."""
        watched = (group for number in self._watched if (group := self._multiraft.groups.get(number)) is not None)
        groups: Iterable[RaftGroup] = watched
        if now >= self._scan_at:
            self._scan_at, groups = now + LOOK_S, self._multiraft.groups.values()
        ahead = {}
        for group in groups:
            latest, found = group.configuration, self._view.group(group.group_id)
            if group.is_leader and latest is not None and found is not None:
                record = found[1]
                if latest.move or latest.version > record.configuration_version:
                    ahead[group.group_id] = record
        return ahead

    def _drive_one(self, group: RaftGroup, record: PartitionRecord, watched: _Watched, now: float) -> None:
        try:
            step = group.next_step(None if record.move is None else _wish(record.move))
            self._take(step, group, record, watched, now)
        except (NotLeader, ChangeRefused) as error:
            step = AwaitCondition(str(error))
        self._watch(step, group, record, watched, now)

    def _take(self, step: NextStep, group: RaftGroup, record: PartitionRecord, watched: _Watched, now: float) -> None:
        latest = group.configuration
        assert latest is not None
        if isinstance(step, AppendConfiguration):
            log.info("group %d: the next configuration is %s", group.group_id, step.configuration)
            entry = _entry(step.configuration)
            crash_point(f"move-before-{entry}")
            group.propose_configuration(step.configuration, partial(self._proposed, entry))
        elif isinstance(step, HandLeadershipOver):
            self._hand_over(group, step, watched, now)
        elif group.is_settled and latest.version > record.configuration_version:
            self._report_end(group, latest, watched, now)

    def _report_end(self, group: RaftGroup, latest: Configuration, watched: _Watched, now: float) -> None:
        if now - watched.reported_at >= REPORT_AGAIN_S:
            watched.reported_at = now
            self._propose(finish_move(group.group_id, latest.ended, latest.version, latest.voters))

    def _hand_over(self, group: RaftGroup, step: HandLeadershipOver, watched: _Watched, now: float) -> None:
        target = watched.patience.hand_over(group, step.candidates, now)
        if target is not None:
            log.info("group %d: leadership goes to node %d, since this replica is to leave", group.group_id, target)
            crash_point("move-after-transfer")

    def _proposed(self, entry: str, _: Outcome) -> None:
        """The configuration in force tells what became of it. Called inside a turn."""
        crash_point(f"move-after-{entry}")
        asyncio.get_running_loop().call_soon(self.look)

    # ---- progress

    def _watch(self, step: NextStep, group: RaftGroup, record: PartitionRecord, watched: _Watched, now: float) -> None:
        latest, move = group.configuration, record.move
        if latest is None or move is None:
            watched.status = None
            return
        held = 0 if move.add is None else group.match_index(move.add.node)
        fetched = 0 if move.add is None else group.fetched_by(move.add.node)
        entries = max(0, group.last_index - group.first_index + 1)
        left = 0 if move.add is None else max(0, group.last_index - max(held, fetched, group.first_index - 1))
        marks = (move.id, latest.version, held, fetched)
        if marks != watched.marks:
            watched.progressed = watched.marks is not None
            watched.marks, watched.since, watched.stalled = marks, now, False
        why = step.why if isinstance(step, AwaitCondition) else ""
        if not watched.stalled and now - watched.since >= STALLED_AFTER_S:
            watched.stalled, watched.progressed = True, False
            log.warning("group %d: the move makes no progress: %s", group.group_id, why or "nothing is in its way")
        if watched.stalled:
            self._report_stall(move, group.group_id, watched, now)
        elif watched.progressed:
            self._report_stall(move, group.group_id, watched, now, goes_on=True)
        state = _state(step, latest, move, near=left == 0)
        watched.status = MoveStatus(group.group_id, state, why, entries, min(left, entries), watched.stalled)

    def _watch_leaderless(self, moving: Iterable[PartitionRecord], led: set[int], now: float) -> None:
        """Let moves of groups without a leader leave their slots; the metadata leader looks."""
        for record in moving:
            if record.move is None or record.move.stalled or record.group in led:
                continue
            watched = self._watched.setdefault(record.group, _Watched(since=now))
            marks = (record.move.id, self._peers.leader_of(record.group))
            if marks != watched.marks or marks[1] is not None:
                watched.marks, watched.since = marks, now
            elif now - watched.since >= STALLED_AFTER_S:
                self._report_stall(record.move, record.group, watched, now)

    def _report_stall(
        self, move: MoveRecord, group: int, watched: _Watched, now: float, *, goes_on: bool = False
    ) -> None:
        """Report until the metadata show it: a report that is lost would hold the slot for ever."""
        if move.stalled == goes_on and now - watched.stall_told_at >= REPORT_AGAIN_S:
            watched.stall_told_at = now
            self._propose(stall_move(group, move.id, goes_on=goes_on))

    def _propose(self, command: Command) -> None:
        task = asyncio.get_running_loop().create_task(self._report(command), name="report of a move")
        self._reporting.add(task)
        task.add_done_callback(self._reporting.discard)

    async def _report(self, command: Command) -> None:
        crash_point("move-before-report")
        result = await self._execute(command)
        crash_point("move-after-report")
        if isinstance(result, Refusal):
            log.warning("the metadata do not take the report of a move yet: %s", result.message)


def _wish(move: MoveRecord) -> Wish:
    return Wish(move.id, move.version, voter=move.add, gone=move.remove, is_cancelled=move.cancel_asked)


def _entry(configuration: Configuration) -> str:
    """Name of an entry, for the places at which a test ends the process."""
    if configuration.is_joint:
        return "joint"
    return "learner" if configuration.move else "end"


def _state(step: NextStep, latest: Configuration, move: MoveRecord, *, near: bool) -> str:
    if isinstance(step, MoveEnded):
        return "finishing"
    if latest.is_joint:
        return "joint"
    if move.cancel_asked:
        return "cancelling"
    if not latest.move:
        return "wished"
    return "near" if near else "copying"
