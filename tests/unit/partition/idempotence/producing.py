"""A partition's machine driven by hand, as idempotent producers see it."""

from __future__ import annotations

from node.partition.idempotence.producer_state import Producer
from node.partition.partition_commands import OpenProducer
from node.partition.state_machine import LONGEST_STEP_MS, AppendAccepted, AppendRejected, Opened, PartitionMachine
from tests.batches import entry_of

DAY_MS = 24 * 3600 * 1000


def digests_of(contents: str) -> bytes:
    """One letter is one event: equal letters, equal bytes."""
    return b"".join(letter.encode() * 4 for letter in contents)


def of_one(result: object) -> object:
    """The result of a command, or of the only batch of an entry."""
    return result[0] if isinstance(result, tuple) and len(result) == 1 else result


class ProducedLog:
    """`machine`, with the next index and a clock that the test moves."""

    def __init__(self) -> None:
        self.machine = PartitionMachine()
        self.index = 0
        self.now_ms = 1_000_000

    def live(self, time_ms: int) -> None:
        """The log gets an entry a minute for so long."""
        end_ms = self.now_ms + time_ms
        while self.now_ms < end_ms:
            self.now_ms = min(self.now_ms + LONGEST_STEP_MS, end_ms)
            self.plain()

    def opened(
        self, producer_id: int | None = None, epoch: int | None = None, last: int | None = None, *, renews: bool = False
    ) -> Opened:
        result = self.open(producer_id, epoch, last, renews=renews)
        assert isinstance(result, Opened), result
        return result

    def open(
        self, producer_id: int | None = None, epoch: int | None = None, last: int | None = None, *, renews: bool = False
    ) -> Opened | AppendRejected:
        result = self.apply(OpenProducer(producer_id, epoch, last, self.now_ms, renews).encode())
        assert isinstance(result, Opened | AppendRejected)
        return result

    def send(self, producer_id: int, epoch: int, first: int, contents: str) -> AppendAccepted | AppendRejected:
        entry = entry_of(
            [letter.encode() for letter in contents],
            self.now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=first,
            digests=digests_of(contents),
        )
        result = self.apply(entry)
        assert isinstance(result, AppendAccepted | AppendRejected)
        return result

    def plain(self, events: int = 1) -> AppendAccepted:
        result = self.apply(entry_of([b"p"] * events, self.now_ms))
        assert isinstance(result, AppendAccepted)
        return result

    def apply(self, entry: bytes) -> object:
        self.index += 1
        result, _ = self.machine.apply(self.index, entry)
        return of_one(result)

    def producer(self, producer_id: int) -> Producer:
        found = self.machine.producers.get(producer_id)
        assert found is not None
        return found

    def restart(self) -> None:
        """From the checkpoint; what is written next is the same as if nothing had happened."""
        data = self.machine.checkpoint()
        self.machine = PartitionMachine()
        self.machine.restore(data)
        assert self.machine.checkpoint() == data


def code(result: object) -> str:
    assert isinstance(result, AppendRejected), result
    return result.code
