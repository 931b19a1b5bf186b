"""Where accepted events stand is told to links that list our outcome, and to nobody else."""

from __future__ import annotations

from typing import Any

from holdfast import protocol
from holdfast.amqp import ACCEPTED, OtherState, Rejected, SenderLink, Source, symbol, uint
from holdfast.records.batch_transfer import transfer_of
from holdfast.records.record_batch import VERSION
from tests.batches import of_bodies
from tests.unit.listener.support.peer import Peer, message
from tests.unit.listener.support.producing import events, terms
from tests.unit.listener.support.sending import keyed, stored, to_partition
from tests.unit.listener.support.single import SingleNode

ASKING = Source(outcomes=("amqp:accepted:list", "amqp:rejected:list", protocol.STORED))
TRADES = {"event-streams-partition": symbol("0")}


def told(states: list[Any]) -> list[Any]:
    """(offset, count, partition) where it is told, else the state."""
    return [
        state.fields if isinstance(state, OtherState) and state.code == protocol.STORED_CODE else state
        for state in states
    ]


async def opened(peer: Peer, log: str, properties: dict[str, Any] | None = None) -> SenderLink:
    link = peer.engine.open_sender(log, source=ASKING, properties=properties)
    await peer._opened(link)
    await peer.until(lambda: link.credit > 0)
    return link


async def test_the_first_of_a_run_tells_for_all(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        plain = await peer.sender("trades", "0")
        await peer.send(plain, [message(b"a"), message(b"b")])
        assert set(await peer.states(plain, 2)) == {ACCEPTED}, "who does not ask is answered as ever"
        link = await opened(peer, "trades", TRADES)
        await peer.send(link, [message(b"c"), message(b"d"), message(b"e")])
        assert told(await peer.states(link, 3)) == [(2, 3, "0"), ACCEPTED, ACCEPTED]
        await peer.send(link, [message(b"f")])
        assert told(await peer.states(link, 4))[3:] == [(5, 1, "0")]
        assert symbol(protocol.STORED) in link.remote_source.outcomes  # type: ignore[union-attr]


async def test_what_is_not_side_by_side_is_told_one_by_one(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await opened(peer, "trades", TRADES)
        await peer.send(link, [message(b"a"), to_partition(symbol("9")), message(b"b")])
        first, refused, last = told(await peer.states(link, 3))
        assert (first, last) == ((0, 1, "0"), (1, 1, "0"))
        assert isinstance(refused, Rejected)


async def test_a_link_to_the_whole_log_is_told_the_partition(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await opened(peer, "wide")
        sent = [keyed(key) for key in ("AAPL", "GOOG", "IBM", "AAPL", "x", "y", "z")]
        await peer.send(link, sent)
        places = told(await peer.states(link, len(sent)))
        logs = stored(node, "wide")
        for record, (offset, count, partition) in zip(sent, places, strict=True):
            assert count == 1
            assert logs[partition][offset] == record
        await peer.send(link, [message(b"1"), message(b"2")])
        (row, after) = told(await peer.states(link, len(sent) + 2))[-2:]
        assert (row[1], after) == (2, ACCEPTED)
        assert logs != stored(node, "wide")
        assert stored(node, "wide")[row[2]][row[0] :] == [message(b"1"), message(b"2")]


async def test_what_came_before_is_told_where_it_stood_then(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        plain = await peer.sender("trades", "0")
        link = await opened(peer, "trades", TRADES | terms(7))
        for first, letters in ((1, "ab"), (3, "c")):
            await peer.send(link, events(7, 0, first, letters))
            await peer.states(link, first + len(letters) - 1)
            await peer.send(plain, [message(b"p")])  # between them
            await peer.states(plain, (first + 1) // 2)
        again = await opened(peer, "trades", TRADES | terms(7, 0, 0))
        await peer.send(again, events(7, 0, 1, "abcde"))
        states = told(await peer.states(again, 5))
        assert states == [(0, 2, "0"), ACCEPTED, (3, 1, "0"), (5, 2, "0"), ACCEPTED]


async def test_a_batch_whose_events_stand_in_several_places_tells_none(node: SingleNode) -> None:
    """It was sent again in another cut, and an event of somebody else stands between its own."""
    in_batches = {protocol.RECORD_BATCHES: uint(VERSION)}
    async with Peer(node.port) as peer:
        plain = await peer.sender("trades", "0")
        link = await opened(peer, "trades", TRADES | terms(7) | in_batches)

        async def tell(first: int, *given: bytes) -> Any:
            before = len(peer.outcomes.get(link, []))
            await peer.send(link, [transfer_of([of_bodies(given, numbers=(7, 0, first))])])
            return told(await peer.states(link, before + 1))[-1]

        assert await tell(1, b"a", b"b") == (0, 1, "0")
        await peer.send(plain, [message(b"p")])
        await peer.states(plain, 1)
        assert await tell(2, b"b", b"c") == ACCEPTED
        assert await tell(3, b"c", b"d") == (3, 1, "0")
        assert await tell(1, b"a", b"b") == (0, 1, "0")
    assert stored(node, "trades")["0"] == [message(letter) for letter in (b"a", b"b", b"p", b"c", b"d")]
