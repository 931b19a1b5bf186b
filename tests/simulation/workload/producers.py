"""An idempotent producer as a client is: it numbers its events once, and sends them until each was accepted.

It keeps a window of events that were not answered. When its connection breaks (the node ended, lost leadership, or the
answer was "unknown") it opens its id again somewhere, with what it knows, and sends the whole window again, cut
otherwise than before. At times another instance takes its id over with a higher epoch, and goes on by its own numbers;
the old one must hear that it was fenced, and stores nothing from then on.

What may never happen to one that keeps the rules: to be told that its numbers are out of order, or that it is not
known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from crc32c import crc32c

from cluster.raft import Committed, Outcome, RaftError
from node.partition.api import Appended, AppendOutcome, Failed
from node.partition.idempotence.producer_state import FORGOTTEN, SEQUENCES
from node.partition.partition_commands import OpenProducer
from node.partition.state_machine import Opened
from tests.batches import numbered
from tests.simulation.checker import Violation
from tests.simulation.world.events import PartitionJudge

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule
    from tests.simulation.world.nodes import SimNode

WINDOW = 12
"""Events without an answer; below what the partition remembers, as with real clients."""
RETRY_S = 0.04
PATIENCE_S = 1.5
"""Without any answer for so long the connection is given up."""
ID_FROM = 1000


@dataclass(frozen=True, slots=True)
class _Sent:
    number: int
    record: bytes


class NumberedProducer:
    def __init__(self, schedule: Schedule, judge: PartitionJudge, place: int) -> None:
        self._schedule = schedule
        self._judge = judge
        randomness = schedule.randomness
        self._id: int | None = None if randomness.random() < 0.3 else ID_FROM + place
        self._epoch: int | None = None
        near_the_end = SEQUENCES - randomness.randint(1, 40)
        self.last: int | None = near_the_end if randomness.random() < 0.2 else None
        self._window: list[_Sent] = []
        self._asked = 0
        self._link: _Link | None = None
        self._trying = False
        self.name = b"p%d" % schedule.unique()
        self._made = 0

    # ---- what it is asked

    def produce(self, count: int) -> None:
        self._asked = min(self._asked + count, WINDOW)
        if self._schedule.randomness.random() < 0.02 and self._epoch is not None and not self._schedule.chaos_over:
            self._is_taken_over()
        self._go_on()

    def drain(self) -> bool:
        """Whether everything was answered."""
        self._asked = 0
        self._go_on()
        return not self._window

    def _is_taken_over(self) -> None:
        """Another instance of the application starts with what was saved, and the old one is not told."""
        link, self._link = self._link, None
        if link is not None:
            link.go_on_as_a_ghost()
        assert self._epoch is not None
        self._epoch += 1
        self.last = None
        self._window = []
        if not self._trying:
            self._retry_soon()

    # ---- connecting

    def _go_on(self) -> None:
        if self._link is not None:
            self._link.fill()
        elif not self._trying:
            self._connect()

    def _connect(self) -> None:
        schedule = self._schedule
        nodes = [node for node in schedule.nodes.values() if node.leads(self._judge.group_id)]
        node = schedule.randomness.choice(nodes) if nodes else None
        if node is not None and node.partition(self._judge.group_id) is not None:
            self._trying = True
            self._open(node)

    def _retry_soon(self) -> None:
        self._trying = True

        def again() -> None:
            self._trying = False
            self._go_on()

        self._schedule.at(self._schedule.now + self._schedule.randomness.uniform(0.1, 1.0) * RETRY_S, again)

    def _open(self, node: SimNode) -> None:
        wish = (self._id, self._epoch, (self._window[0].number - 1) % SEQUENCES if self._window else self.last)
        epoch_asked = self._epoch
        hang_up = node.call(self._retry_soon)

        def done(outcome: Outcome) -> None:
            if not hang_up():
                return
            if self._epoch != epoch_asked:  # taken over meanwhile
                self._retry_soon()
            elif isinstance(outcome, Committed):
                self._opened(node, outcome.result)
            else:
                self._retry_soon()

        try:
            command = OpenProducer(*wish, node.cluster_clock.now_ms())
            node.multiraft.groups[self._judge.group_id].propose(command.encode(), done)
        except RaftError:
            hang_up()
            self._retry_soon()

    def _opened(self, node: SimNode, result: object) -> None:
        self._trying = False
        if not isinstance(result, Opened):
            raise Violation(f"group {self._judge.group_id}: producer {self._id} may not open: {result}")
        self._id, self._epoch = result.producer_id, result.epoch
        if self.last is None:
            self.last = result.last_sequence
        self._link = _Link(self, self._schedule, self._judge, node, self._id, self._epoch, list(self._window))
        self._link.fill()

    # ---- what its link does

    def next_events(self, count: int) -> list[_Sent]:
        """New ones, as far as it was asked for some."""
        made: list[_Sent] = []
        while self._asked and len(made) < count and len(self._window) < WINDOW:
            assert self.last is not None
            self._asked -= 1
            self._made += 1
            self.last = (self.last + 1) % SEQUENCES
            size = self._schedule.randomness.choice((0, 20, 150))
            sent = _Sent(self.last, b"%s.%d." % (self.name, self._made) + b"y" * size)
            self._window.append(sent)
            made.append(sent)
        return made

    def accepted(self, sent: list[_Sent]) -> None:
        if self._window[: len(sent)] != sent:
            raise Violation(f"group {self._judge.group_id}: {sent} was accepted before {self._window[0]}")
        del self._window[: len(sent)]

    def broken(self, link: _Link) -> None:
        if self._link is link:
            self._link = None
            self._retry_soon()


class _Link:
    """One attachment to one node. What is refused on it ends it; nothing is sent behind."""

    def __init__(
        self,
        producer: NumberedProducer,
        schedule: Schedule,
        judge: PartitionJudge,
        node: SimNode,
        producer_id: int,
        epoch: int,
        again: list[_Sent],
    ) -> None:
        self._producer = producer
        self._schedule = schedule
        self._judge = judge
        self._node = node
        self._who = (producer_id, epoch)
        self._again = again
        self._in_flight = 0
        self._is_broken = False
        self._is_ghost = False
        self._answered_at = schedule.now

    def fill(self) -> None:
        if self._in_flight and self._schedule.now - self._answered_at > PATIENCE_S:
            self._break()
        while not self._is_broken and self._in_flight < 4:
            count = self._schedule.randomness.randint(1, 5)
            sent, self._again = self._again[:count], self._again[count:]
            sent = sent or self._producer.next_events(count)
            if not sent:
                return
            self._send(sent)

    def _send(self, sent: list[_Sent]) -> None:
        replica = self._node.partition(self._judge.group_id)
        if replica is None:
            self._break()
            return
        records = [one.record for one in sent]
        digests = b"".join(crc32c(record).to_bytes(4) for record in records)
        self._in_flight += 1
        hang_up = self._node.call(self._break)

        def done(outcome: AppendOutcome) -> None:
            self._in_flight -= 1
            self._answered_at = self._schedule.now
            if hang_up():
                self._answer(sent, outcome)

        replica.append(numbered(records, *self._who, sent[0].number, digests), done)

    def _answer(self, sent: list[_Sent], outcome: AppendOutcome) -> None:
        if isinstance(outcome, Appended):
            if self._is_ghost and outcome.base_offset == FORGOTTEN:
                return  # it has used a number again, for another event, and there was no room to notice it
            self._judge.acknowledge([one.record for one in sent], outcome)
            if not self._is_ghost and not self._is_broken:
                self._producer.accepted(sent)
            return
        self._check(outcome)
        self._break()

    def _check(self, failure: Failed) -> None:
        """Behind another refusal on the same link anything may be refused; else only one that was taken over may."""
        fenced = self._is_ghost and failure.kind in ("producer_stolen", "out_of_order")
        if not failure.retriable and failure.kind != "deleted" and not fenced and not self._is_broken:
            raise Violation(f"group {self._judge.group_id}: producer {self._who} kept the rules and hears {failure}")

    def _break(self) -> None:
        if not self._is_broken:
            self._is_broken = True
            self._producer.broken(self)

    def go_on_as_a_ghost(self) -> None:
        """Its producer has another instance now; it sends something more all the same, and has lost count."""
        self._is_ghost = True
        last = self._producer.last
        if not self._is_broken and not self._again and last is not None:
            record = b"%s.ghost %d" % (self._producer.name, self._schedule.unique())
            self._send([_Sent((last + self._schedule.randomness.choice((0, 1, 5))) % SEQUENCES, record)])
