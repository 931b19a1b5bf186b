"""A peer that declares and discharges transactions, and says each thing when a test wants it said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.amqp import (
    Accepted,
    ConnectionClosed,
    Coordinator,
    Declared,
    LinkDetached,
    ReceiverLink,
    Rejected,
    SenderLink,
    Transactional,
)
from holdfast.amqp.transactions import encode_declare, encode_discharge
from tests.unit.listener.support.peer import Peer, message


class Control:
    """A control link of a peer."""

    def __init__(self, peer: Peer, link: SenderLink) -> None:
        self.peer = peer
        self.link = link

    @classmethod
    async def attach(cls, peer: Peer, **options: Any) -> Control:
        return cls(peer, await peer.sender(Coordinator(), **options))

    async def ask(self, payload: bytes, *, settled: bool | None = None) -> int:
        (number,) = self.link.send_many([payload], settled)
        await self.peer.flush()
        return number

    async def answer(self, number: int) -> Any:
        await self.peer.until(lambda: self._found(number) or self._ended())
        return self._found(number)

    def _found(self, number: int) -> Any:
        return dict(self.peer.outcomes.get(self.link, [])).get(number)

    def _ended(self) -> bool:
        return any(
            isinstance(event, ConnectionClosed) or (isinstance(event, LinkDetached) and event.link is self.link)
            for event in self.peer.history
        )

    async def declare(self) -> bytes:
        state = await self.answer(await self.ask(encode_declare()))
        assert isinstance(state, Declared), state
        return state.txn_id

    async def discharge(self, txn_id: bytes, *, fail: bool) -> Any:
        return await self.answer(await self.ask(encode_discharge(txn_id, fail)))

    async def commit(self, txn_id: bytes) -> Any:
        return await self.discharge(txn_id, fail=False)

    async def abort(self, txn_id: bytes) -> Any:
        return await self.discharge(txn_id, fail=True)

    async def committed(self, txn_id: bytes) -> None:
        state = await self.commit(txn_id)
        assert isinstance(state, Accepted), state

    async def aborted(self, txn_id: bytes) -> None:
        state = await self.abort(txn_id)
        assert isinstance(state, Accepted), state


async def send_under(peer: Peer, link: SenderLink, txn_id: bytes, bodies: Sequence[bytes]) -> list[Any]:
    """The outcomes, each of them provisional."""
    numbers = link.send_many([message(body) for body in bodies], txn_id=txn_id)
    await peer.flush()

    def told() -> list[Any]:
        outcomes = dict(peer.outcomes.get(link, []))
        return [outcomes[number] for number in numbers if number in outcomes]

    await peer.until(lambda: len(told()) == len(bodies))
    for state in told():
        assert isinstance(state, Transactional), state
        assert state.txn_id == txn_id
    return [state.outcome for state in told()]


def why(state: Any) -> str:
    """The condition of a rejection."""
    assert isinstance(state, Rejected), state
    assert state.error is not None
    return state.error.condition


def accept_under(link: ReceiverLink, deliveries: Sequence[Any], txn_id: bytes) -> None:
    link.settle(deliveries, Transactional(txn_id, Accepted()))
