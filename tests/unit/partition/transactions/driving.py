"""A partition's machine driven by hand, as coordinators, producers and consumer groups see it."""

from __future__ import annotations

from node.partition.consumer_groups.group_state import Claim, Owned
from node.partition.partition_commands import encode_group_command, encode_transaction_command
from node.partition.state_machine import AppendAccepted, AppendRejected, PartitionMachine
from node.partition.transactions.control_record import ControlType, Marker
from node.partition.transactions.transaction_commands import Begin, Prepare, StageOffset
from node.partition.transactions.transaction_state import TransactionDone, TransactionRefused
from tests.batches import entry_of
from tests.unit.partition.idempotence.producing import digests_of, of_one

TIMEOUT_MS = 60_000
COORDINATOR = 3


def batch(producer: int, epoch: int, first: int, contents: str, now_ms: int) -> bytes:
    """One letter is one event."""
    return entry_of(
        [letter.encode() for letter in contents],
        now_ms,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=first,
        digests=digests_of(contents),
        transactional=True,
    )


def marker(producer: int, epoch: int, *, commit: bool, now_ms: int, term: int = 7) -> bytes:
    return Marker(producer, epoch, ControlType.COMMIT if commit else ControlType.ABORT, term, now_ms).encode()


class DrivenPartition:
    def __init__(self) -> None:
        self.machine = PartitionMachine()
        self.index = 0
        self.now_ms = 1_000_000

    # ------------------------------------------------------------ commands

    def apply(self, entry: bytes) -> object:
        self.index += 1
        result, _ = self.machine.apply(self.index, entry)
        return of_one(result)

    def begin(self, producer: int, epoch: int) -> TransactionDone | TransactionRefused:
        return self._told(Begin(producer, epoch, COORDINATOR, TIMEOUT_MS, self.now_ms))

    def send(self, producer: int, epoch: int, first: int, contents: str) -> AppendAccepted | AppendRejected:
        result = self.apply(batch(producer, epoch, first, contents, self.now_ms))
        assert isinstance(result, AppendAccepted | AppendRejected), result
        return result

    def plain(self, events: int = 1) -> AppendAccepted:
        result = self.apply(entry_of([b"p"] * events, self.now_ms))
        assert isinstance(result, AppendAccepted)
        return result

    def claim(self, key: str, epoch: int | None = None) -> object:
        return self.apply(encode_group_command(Claim(key, "member", "", epoch, timestamp_ms=self.now_ms)))

    def claimed(self, key: str, epoch: int | None = None) -> Owned:
        owned = self.claim(key, epoch)
        assert isinstance(owned, Owned), owned
        return owned

    def stage(
        self, producer: int, epoch: int, key: str, claim: int, position: int
    ) -> TransactionDone | TransactionRefused:
        return self._told(StageOffset(producer, epoch, key, claim, position, self.now_ms))

    def prepare(self, producer: int, epoch: int) -> TransactionDone | TransactionRefused:
        return self._told(Prepare(producer, epoch, self.now_ms))

    def end(self, producer: int, epoch: int, *, commit: bool) -> TransactionDone | TransactionRefused:
        result = self.apply(marker(producer, epoch, commit=commit, now_ms=self.now_ms))
        assert isinstance(result, TransactionDone | TransactionRefused), result
        return result

    def _told(self, command: Begin | StageOffset | Prepare) -> TransactionDone | TransactionRefused:
        result = self.apply(encode_transaction_command(command))
        assert isinstance(result, TransactionDone | TransactionRefused), result
        return result

    # ------------------------------------------------------------ what is to be seen

    @property
    def stable_offset(self) -> int:
        return self.machine.stable_offset

    def position(self, key: str) -> int:
        row = self.machine.ownership.get(key)
        assert row is not None
        return row.position

    def restart(self) -> None:
        """From a checkpoint of this moment."""
        data = self.machine.checkpoint()
        self.machine = PartitionMachine()
        self.machine.restore(data)
        assert self.machine.checkpoint() == data


def code_of(result: object) -> str:
    assert isinstance(result, TransactionRefused | AppendRejected), result
    return result.code
