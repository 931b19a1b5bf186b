"""The machine against a model that is too simple to be wrong: it looks at one event at a time, and forgets by lists."""

from __future__ import annotations

from dataclasses import dataclass, field
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from node.partition.idempotence import producer_state as rules
from node.partition.idempotence.producer_state import FORGOTTEN, MEMORY_BYTES, SEQUENCES
from node.partition.state_machine import AppendAccepted, AppendRejected, Opened
from tests.unit.partition.idempotence.producing import ProducedLog

BATCHES, EVENTS = 2, 6
"""So small that scripts of some dozen steps meet every bound."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass
class Known:
    number: int
    letter: str
    offset: int
    timestamp_ms: int


@dataclass
class ModelProducer:
    epoch: int
    start: int
    last: int | None = None
    batches: list[list[Known]] = field(default_factory=list)

    def remembered(self, number: int) -> Known | None:
        return next((event for batch in self.batches for event in batch if event.number == number), None)

    def begin(self, epoch: int) -> None:
        self.epoch, self.start, self.last, self.batches = epoch, 0, None, []

    def remember(self, batch: list[Known]) -> None:
        self.batches.append(batch)
        self.last = batch[-1].number
        while len(self.batches) > BATCHES and sum(map(len, self.batches[1:])) >= EVENTS:
            self.batches.pop(0)


class Model:
    def __init__(self) -> None:
        self.producers: dict[int, ModelProducer] = {}
        self.next_offset = 0

    def open(self, producer_id: int, epoch: int | None, last: int | None) -> tuple[int, int, int] | str:
        producer = self.producers.get(producer_id)
        if producer is None:
            if epoch is not None and last is not None:
                return "producer-unknown"
            producer = self.producers[producer_id] = ModelProducer(epoch or 0, last or 0)
            return producer_id, producer.epoch, producer.start
        if epoch is not None and epoch < producer.epoch:
            return "producer-stolen"
        if epoch is not None and epoch > producer.epoch:
            producer.begin(epoch)
        if producer.last is None and last is not None:
            producer.start = last
        answer = last if last is not None else producer.start if producer.last is None else producer.last
        return producer_id, producer.epoch, answer

    def send(self, producer_id: int, epoch: int, first: int, contents: str, now_ms: int) -> list[int] | tuple[str, int]:
        """The offset of each event; or why not, and how many of the first are known all the same."""
        producer = self.producers.get(producer_id)
        if producer is None:
            return "producer-unknown", 0
        if epoch < producer.epoch:
            return "producer-stolen", 0
        if epoch > producer.epoch:
            if first != 0:
                return "out-of-order", 0
            producer.begin(epoch)
        offsets, fresh, last = [], [], producer.last
        for place, letter in enumerate(contents):
            number = (first + place) % SEQUENCES
            known = producer.remembered(number)
            if last is None or number == (last + 1) % SEQUENCES:
                fresh.append(Known(number, letter, self.next_offset + len(fresh), now_ms))
                offsets.append(fresh[-1].offset)
                last = number
            elif known is not None and known.letter == letter:
                offsets.append(known.offset)
            else:
                assert not fresh
                return "out-of-order", place
        if fresh:
            producer.remember(fresh)
        self.next_offset += len(fresh)
        return offsets


ids = st.sampled_from([3, 4])
steps = st.one_of(
    st.tuples(st.just("open"), ids, st.none() | st.integers(0, 3), st.none() | st.sampled_from([0, 5, SEQUENCES - 3])),
    # how far from the next number, how many events, and the one among them that is not what it should be
    st.tuples(st.just("send"), ids, st.integers(-9, 2), st.integers(1, 5), st.none() | st.integers(0, 4)),
    st.tuples(st.just("send"), ids, st.just(0), st.integers(1, 5), st.none()),
    st.tuples(st.just("old epoch"), ids, st.integers(-1, 1)),
    st.tuples(st.just("plain"), st.integers(1, 3)),
    st.tuples(st.just("restart")),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, min_size=20, max_size=80))
def test_the_machine_does_what_the_model_does(script: list[tuple[str, ...]]) -> None:
    with mock.patch.multiple(rules, REMEMBERED_BATCHES=BATCHES, REMEMBERED_EVENTS=EVENTS):
        run(script)


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, min_size=20, max_size=80))
def test_where_memory_is_scarce_the_machine_forgets_places_and_nothing_else(script: list[tuple[str, ...]]) -> None:
    """Towards producers that keep the rules: the same event has the same number, and no more of them come again than
    can be under way."""
    scarce = {"MEMORY_BYTES": 3 * (20 + 4), "LEAST_EVENTS": 1, "REMEMBERED_BATCHES": 1, "REMEMBERED_EVENTS": EVENTS}
    with mock.patch.multiple(rules, **scarce):
        run(script, scarce=True)


def run(script: list[tuple], *, scarce: bool = False) -> None:  # type: ignore[type-arg]
    log, model = ProducedLog(), Model()
    for step in script:
        log.now_ms += 1
        match step:
            case ("open", producer_id, epoch, last):
                found = log.open(producer_id, epoch, last)
                expected = model.open(producer_id, epoch, last)
                if isinstance(found, Opened):
                    assert (found.producer_id, found.epoch, found.last_sequence) == expected
                else:
                    assert found.code == expected
            case ("send", _, shift, _, wrong) if scarce and (shift < -EVENTS or wrong is not None):
                continue
            case ("old epoch", _, 0) if scarce:
                continue
            case ("send", producer_id, shift, count, wrong):
                known = model.producers.get(producer_id)
                begin = 0 if known is None else known.start + 1 if known.last is None else known.last + 1
                first = (begin + shift) % SEQUENCES
                letters = [LETTERS[(first + place) % SEQUENCES % 26] for place in range(count)]
                if wrong is not None and wrong < count:
                    letters[wrong] = letters[wrong].upper()
                send(log, model, producer_id, 0 if known is None else known.epoch, first, "".join(letters))
            case ("old epoch", producer_id, shift):
                known = model.producers.get(producer_id)
                if known is not None and known.epoch + shift >= 0:
                    send(log, model, producer_id, known.epoch + shift, 0, "a")
            case ("plain", events):
                assert log.plain(events).base_offset == model.next_offset
                model.next_offset += events
            case ("restart",):
                log.restart()
        assert log.machine.state.next_offset == model.next_offset


def send(log: ProducedLog, model: Model, producer_id: int, epoch: int, first: int, contents: str) -> None:
    expected = model.send(producer_id, epoch, first, contents, log.now_ms)
    found = log.send(producer_id, epoch, first, contents)
    if isinstance(found, AppendAccepted):
        assert len(expected) == len(contents)
        for place, offset in enumerate(expected):
            assert found.place_of(place)[0] in (offset, FORGOTTEN)
        if rules.MEMORY_BYTES == MEMORY_BYTES:
            assert FORGOTTEN not in [found.place_of(place)[0] for place in range(len(contents))]
    else:
        assert isinstance(found, AppendRejected)
        assert (found.code, sum(place.events for place in found.known)) == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(steps, min_size=5, max_size=40))
def test_how_resends_are_cut_never_matters(script: list[tuple[str, ...]]) -> None:
    """The same events, sent again one by one: each is answered as it was within its batch."""
    with mock.patch.multiple(rules, REMEMBERED_BATCHES=BATCHES, REMEMBERED_EVENTS=EVENTS):
        log = ProducedLog()
        log.opened(3)
        sent: list[str] = []
        for step in script:
            if step[0] == "plain":
                log.plain()
            elif step[0] == "send":
                letters = "".join(LETTERS[(len(sent) + place) % 26] for place in range(int(step[3])))
                log.send(3, 0, 1 + len(sent), letters)
                sent += letters
        remembered = log.producer(3).remembered
        assert min(EVENTS, len(sent)) <= remembered
        for number in range(1 + len(sent) - remembered, 1 + len(sent)):
            whole = log.send(3, 0, number, "".join(sent[number - 1 :]))
            alone = [log.send(3, 0, n, sent[n - 1]) for n in range(number, 1 + len(sent))]
            assert isinstance(whole, AppendAccepted)
            assert whole.duplicate
            assert [one.place_of(0) for one in alone if isinstance(one, AppendAccepted)] == [
                whole.place_of(place) for place in range(len(alone))
            ]
