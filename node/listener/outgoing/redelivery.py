"""Handed-out deliveries of a link until they count: those accepted under transactions, and those that come again.

Problem: a peer may say of a delivery that it is accepted if a transaction commits, settle that at once or later, or
take it back; the transaction ends one way or the other, and what did not count must be handed out again.

Rules never broken:
 - what the peer has settled for good, and nothing else, is told as settled;
 - what was accepted under a transaction is settled by its commit, and given back by any other end, if the peer has
   settled it; if the peer has not, the peer will say. While the end is being decided, the peer cannot say otherwise;
 - what the peer gives back (released, modified) comes again only on a connection that declares transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from holdfast.amqp import Accepted, DeliveryState, Modified, Rejected, Released, SenderLink, Transactional
from node.listener.amqp_transactions.connection_transaction import ClientTransaction, ReceivingLink
from node.listener.outgoing.unsettled_deliveries import UnsettledDeliveries


class Cursor(Protocol):
    def give_back(self, offset: int) -> None: ...


C = TypeVar("C", bound=Cursor)


class Host(Protocol):
    """The connection."""

    transactions: dict[bytes, Any]
    declares_transactions: bool


class RedeliveryOwner(ReceivingLink, Protocol):
    """The endpoint of the link."""

    def given_back(self, number: int) -> None:
        """Note a delivery that did not count; its event is handed out again."""
        ...


class Redelivery(Generic[C]):
    def __init__(self, host: Host, owner: RedeliveryOwner, link: SenderLink) -> None:
        self.given_back: dict[C, None] = {}
        """Cursors that are to begin again; the owner takes them out."""
        self.too_many = False
        """True when a transaction could not remember what was accepted under it: the link must end."""
        self._host, self._owner, self._link = host, owner, link
        self._handed_out: UnsettledDeliveries[C] = UnsettledDeliveries()
        self._in_transaction: dict[int, ClientTransaction] = {}  # deliveries that were accepted under one

    def sent(self, first: int, cursor: C, runs: Sequence[tuple[int, int]]) -> None:
        """Note deliveries that are numbered from `first` on; `runs` of (offset, count)."""
        self._handed_out.sent(first, cursor, runs)

    def settled(self, outcomes: Iterable[tuple[int, DeliveryState]]) -> list[int]:
        """Take in outcomes; return the deliveries that the peer is done with."""
        if self._host.declares_transactions:
            numbers = [number for number, state in outcomes if not self._concerns_transaction(number, state)]
        else:
            numbers = [number for number, _ in outcomes]
        self._handed_out.settled(numbers)
        return numbers

    def committed(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._in_transaction.pop(number, None)
        self._link.settle(numbers)
        self._handed_out.settled(sorted(numbers))

    def rolled_back(self, numbers: Sequence[int]) -> None:
        """Give back these deliveries, which the peer has settled: they did not count."""
        for number in numbers:
            self._give_back(number)

    def _concerns_transaction(self, number: int, state: DeliveryState) -> bool:
        """Handle an outcome under a transaction. False: the delivery is settled for good."""
        earlier = self._in_transaction.get(number)
        if earlier is not None and not earlier.is_open and not earlier.is_over:
            if not isinstance(state, Transactional) or state.settled:
                earlier.settled(self._owner, number)
            return True
        if isinstance(state, Transactional):
            return self._under_transaction(number, state)
        if isinstance(state, Released | Modified) and not _is_refused(state):
            if earlier is not None:
                earlier.taken_back(self._owner, number)
            self._give_back(number)
            return True
        if earlier is not None and earlier.is_open:  # the peer has settled what it accepted under the transaction
            earlier.received(self._owner, number, settled=True)
            return True
        self._in_transaction.pop(number, None)
        return False

    def _under_transaction(self, number: int, state: Transactional) -> bool:
        own = self._host.transactions.get(state.txn_id)
        if own is not None and own.is_open and isinstance(state.outcome, Accepted):
            self._in_transaction[number] = own
            if not own.received(self._owner, number, settled=state.settled):
                self.too_many = True
            return True
        if not state.settled:  # it is not accepted, or under no open transaction: the peer will say more
            return True
        if _is_refused(state.outcome):
            return False
        self._give_back(number)
        return True

    def _give_back(self, number: int) -> None:
        found = self._handed_out.find(number)
        self._in_transaction.pop(number, None)
        self._handed_out.settled((number,))
        if found is not None:
            cursor, offset = found
            cursor.give_back(offset)
            self.given_back[cursor] = None
            self._owner.given_back(number)


def _is_refused(state: DeliveryState | None) -> bool:
    """Tell whether the peer does not want the event again."""
    return isinstance(state, Rejected) or (isinstance(state, Modified) and state.undeliverable_here)
