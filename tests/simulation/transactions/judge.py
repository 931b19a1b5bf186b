"""What must hold of transactions, seen by one who sees all groups: what coordinators decide, what partitions do about
it, what clients are told.

* Decided once: whatever anybody applies, is told or marks about a transaction says the same.
* No marker says *committed* before the coordinator's group has decided so; no coordinator calls a transaction complete
  before each of its partitions has a marker.
* Lost writes and G0: of a committed transaction each partition has the events that were sent there, once, in order; of
  no transaction an event comes behind its end.
* G1a and G1b: a committed reader is given no event of a transaction that is open or aborted, and passes over no other.
* The last stable offset is where the oldest open transaction begins; nobody is told a lower one than before.
* Positions of consumer groups are moved by the owner in force only, and by a transaction only when it commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cluster.raft import ENTRY_REGULAR
from holdfast.records.record_batch import RecordBatch
from node.client_transactions.transaction import StagedPosition
from node.partition.consumer_groups.group_state import Claim, Done, EndClaim, Owned
from node.partition.partition_commands import decode
from node.partition.state_machine import AppendAccepted
from node.partition.transactions.control_record import Marker
from node.partition.transactions.transaction_commands import StageOffset
from node.partition.transactions.transaction_state import TransactionDone
from node.transaction_coordinator import coordinator_commands as coordinator
from node.transaction_coordinator.coordinator_commands import (
    Added,
    AddPartitions,
    Complete,
    Decided,
    Declined,
    EndTransaction,
    Expire,
    Registered,
)
from tests.simulation.checker import Violation
from tests.simulation.transactions.group_judge import GroupLedger
from tests.simulation.world.events import PartitionJudge

Pair = tuple[int, int]


class Ledger:
    """Of a schedule: all its transactions."""

    def __init__(self) -> None:
        self.decisions: dict[Pair, bool] = {}
        self.sent: dict[Pair, dict[int, list[bytes]]] = {}
        """By Raft group, in order: what a client wrote, or tried to."""
        self.positions: dict[Pair, list[StagedPosition]] = {}
        """That a client wants to move with it."""
        self.opened: dict[int, int] = {}
        """By producer: the epoch of the latest transaction that has taken in a partition."""
        self.partitions: dict[int, TransactionsJudge] = {}
        self.groups = GroupLedger(self)
        self._ongoing: dict[str, Pair] = {}
        self._added: dict[Pair, dict[int, None]] = {}
        self._holders: dict[str, list[str]] = {}
        """By id, in the order in which they registered it, or asked to while a transaction was ended for them."""

    # ---- coordinators

    def applied(self, command: coordinator.Command, result: object) -> None:
        """By a coordinator, for the first time."""
        self.groups.applied(command, result)
        match command, result:
            case AddPartitions(), Added():
                pair = (command.producer_id, command.epoch)
                if pair in self.decisions:
                    raise Violation(f"transaction {pair} is decided, and takes in {command.groups}")
                self.opened[command.producer_id] = command.epoch
                self._ongoing[command.transactional_id] = pair
                self._added.setdefault(pair, {}).update(dict.fromkeys(command.groups))
            case ((EndTransaction() | Expire() | Complete()), Decided()):
                pair = (command.producer_id, command.epoch)
                self.decided(pair, committed=result.committed)
                if isinstance(command, Complete):
                    self._completed(pair)
            case coordinator.Register(), Registered():
                self._wants(command)
            case coordinator.Register(), Declined(code="busy"):
                self._wants(command)
                pair = self._ongoing[command.transactional_id]
                if pair not in self.decisions:
                    self.decided(pair, committed=False)

    def _wants(self, command: coordinator.Register) -> None:
        self._holders.setdefault(command.transactional_id, []).append(command.holder)

    def decided(self, pair: Pair, *, committed: bool) -> None:
        before = self.decisions.setdefault(pair, committed)
        if before != committed:
            raise Violation(f"transaction {pair} is decided twice: committed {before}, and committed {committed}")
        for group_id in self._added.get(pair, ()):
            judge = self.partitions.get(group_id)
            if judge is not None:
                judge.agree(pair)

    def _completed(self, pair: Pair) -> None:
        missing = [group for group in self._added.get(pair, ()) if pair not in self.partitions[group].ended]
        if missing:
            raise Violation(f"transaction {pair} is called complete, and groups {missing} have no marker")

    def was_taken(self, transactional_id: str, holder: str) -> bool:
        """Somebody else wanted the id after the holder first did."""
        holders = self._holders.get(transactional_id, [])
        return holder in holders and any(other != holder for other in holders[holders.index(holder) :])

    # ---- clients

    def sends(self, pair: Pair, group_id: int, records: Iterable[bytes]) -> None:
        self.sent.setdefault(pair, {}).setdefault(group_id, []).extend(records)

    def told(self, pair: Pair, *, committed: bool) -> None:
        """A client was, for good."""
        if self.decisions.get(pair, False) != committed:
            raise Violation(f"a client is told that {pair} is committed: {committed}; decided: {self.decisions}")
        self.decisions[pair] = committed
        for one in self.positions.get(pair, []) if committed else []:
            if self.partitions[one.group].staged.get(pair, {}).get(one.key) != (one.claim, one.position):
                raise Violation(f"a client is told that {pair} is committed, without {one}")

    def finish(self) -> None:
        for pair, committed in self.decisions.items():
            if committed:
                for group_id, records in self.sent.get(pair, {}).items():
                    stored = self.partitions[group_id].stored_by.get(pair, [])
                    if stored != records or self.partitions[group_id].ended.get(pair) is not True:
                        raise Violation(f"committed {pair} wrote {records} to group {group_id}; there is {stored}")


class TransactionsJudge(PartitionJudge):
    """Of a partition, or of a coordinator: what is applied says which."""

    def __init__(self, group_id: int, ledger: Ledger) -> None:
        super().__init__(group_id)
        self._ledger = ledger
        self.ended: dict[Pair, bool] = {}
        self.stored_by: dict[Pair, list[bytes]] = {}
        self.told_stable = 0
        self.staged_moves = 0
        self._by: list[Pair | None] = []  # of each event
        self._open: dict[Pair, int] = {}  # first offset
        self._wrote: set[Pair] = set()  # an event, or a position
        self.staged: dict[Pair, dict[str, tuple[int, int]]] = {}
        self._owner: dict[str, int] = {}  # the claim that was granted last
        self._stands: dict[str, int] = {}

    @property
    def stable(self) -> int:
        """The last stable offset, by what any node has applied."""
        return min(self._open.values(), default=len(self.events))

    # ---- what is applied

    def _first_applied(self, index: int, data: bytes, result: object) -> None:
        if isinstance(result, coordinator.Result):
            self._ledger.applied(coordinator.decode(data[len(ENTRY_REGULAR) :]), result)
            return
        super()._first_applied(index, data, result)
        self._ledger.partitions[self.group_id] = self
        if isinstance(result, TransactionDone):
            self._transaction(decode(data))
        elif isinstance(result, Owned | Done):
            self._group(decode(data), result)
        if self.start_offset > self.stable:
            raise Violation(f"group {self.group_id}: trimmed up to {self.start_offset}, beyond {self.stable}")

    def _store(self, index: int, batch: RecordBatch, result: AppendAccepted) -> None:
        super()._store(index, batch, result)
        pair = batch.head.transaction
        self._by += [pair] * result.count
        if pair is None:
            return
        if pair in self.ended:
            raise Violation(f"group {self.group_id}: an event of {pair} comes behind its end")
        self._wrote.add(pair)
        self._open.setdefault(pair, result.base_offset)
        self.stored_by.setdefault(pair, []).extend(self.events[result.base_offset :])

    def _transaction(self, command: Any) -> None:
        if isinstance(command, StageOffset):
            pair, key = (command.producer_id, command.epoch), command.key
            self._wrote.add(pair)
            known = self.staged.setdefault(pair, {}).get(key, (0, 0))
            self.staged[pair][key] = (command.claim, max(known[1], command.position))
        elif isinstance(command, Marker):
            self._marker((command.producer_id, command.epoch), committed=command.committed)

    def _marker(self, pair: Pair, *, committed: bool) -> None:
        if committed and self._ledger.decisions.get(pair) is not True:
            raise Violation(f"group {self.group_id}: {pair} is marked as committed, and not decided so")
        if pair in self.ended:
            self.agree(pair)
            return
        self.ended[pair] = committed
        self.agree(pair)
        self._open.pop(pair, None)
        for key, (claim, position) in self.staged.get(pair, {}).items():
            if committed:
                if self._owner.get(key) != claim:
                    raise Violation(
                        f"group {self.group_id}: {pair} moves {key!r} for claim {claim}, which was succeeded by "
                        f"{self._owner.get(key)}"
                    )
                self._stands[key] = max(self._stands.get(key, 0), position)
                self.staged_moves += 1

    def agree(self, pair: Pair) -> None:
        """Where it has written, or staged, its marker is what was decided."""
        decided, marked = self._ledger.decisions.get(pair), self.ended.get(pair)
        if pair in self._wrote and decided is True and marked is False:
            raise Violation(f"group {self.group_id}: {pair} is marked as aborted, and decided to commit")

    def _group(self, command: Any, result: Owned | Done) -> None:
        key = getattr(command, "key", "")
        if isinstance(command, Claim) and isinstance(result, Owned):
            if key in self._stands and result.position < self._stands[key]:
                raise Violation(f"group {self.group_id}: {result} of {key!r}, which stands at {self._stands[key]}")
            self._owner[key] = result.claim
        elif isinstance(command, EndClaim):
            return
        elif isinstance(result, Done):
            self._stands[key] = max(self._stands.get(key, 0), result.position)

    # ---- what is read

    def read_committed(self, node: int, start: int, batches: Iterable[RecordBatch], position: int) -> None:
        """A committed reader that was at `start` is given this, and goes on at `position`."""
        seen: set[int] = set()
        batches = list(batches)
        self.served(node, batches)
        for batch in batches:
            seen.update(range(batch.offset, batch.next_offset))
        for offset in sorted(seen):
            pair = self._by[offset]
            if pair is not None and self.ended.get(pair) is not True:
                raise Violation(
                    f"group {self.group_id}: a committed reader at node {node} is given event {offset} of {pair}, "
                    f"which is {'aborted' if pair in self.ended else 'open'}"
                )
        for offset in range(max(start, self.start_offset), position):
            pair = self._by[offset]
            if offset not in seen and (pair is None or self.ended.get(pair) is not False):
                raise Violation(
                    f"group {self.group_id}: a committed reader at node {node} passes over event {offset} of {pair}"
                )
        if position > max(start, self.stable):
            raise Violation(f"group {self.group_id}: a committed reader is at {position}, beyond {self.stable}")

    def read_on(self, node: int, start: int, batches: Sequence[RecordBatch]) -> int:
        """A committed reader passes over what was aborted."""
        before = self.reads
        self.read_committed(node, start, batches, batches[-1].next_offset if batches else start)
        return self.reads - before

    def ended_as(self, offset: int) -> bool | None:
        """True: the event counts, for good. False: it was rolled back. None: it is open."""
        pair = self._by[offset]
        return True if pair is None else self.ended.get(pair)

    def tell_stable(self, node: int, floor: int, stable: int) -> None:
        """A client hears it; it asked when `floor` was the highest that anybody had heard."""
        if not floor <= stable <= self.stable:
            raise Violation(
                f"group {self.group_id}: node {node} tells the last stable offset {stable}; it was {floor} before, and "
                f"is {self.stable}"
            )
        self.told_stable = max(self.told_stable, stable)
