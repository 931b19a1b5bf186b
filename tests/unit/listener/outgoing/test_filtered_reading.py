"""Reading from a position, with credit, drain and settlement as the consumer likes."""

from __future__ import annotations

from holdfast.amqp import Drained, decode_message
from tests.unit.listener.support.peer import Peer, eventually, message
from tests.unit.listener.support.reading import fill, place, start_at
from tests.unit.listener.support.single import SingleNode


async def test_a_time_selects_what_was_appended_after_it(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 10, rounds=4)
        everything = await peer.receiver(start_at("trades", "@earliest"), credit=40)
        await peer.until(lambda: len(peer.received.get(everything, [])) == 40)
        places = [place(payload) for payload in peer.received[everything]]
        assert [offset for _, offset, _ in places] == list(range(40))
        third_ms = places[29][2]  # when the third round's last event was appended
        link = await peer.receiver(start_at("trades", time_ms=third_ms), credit=40)
        await peer.until(lambda: len(peer.received.get(link, [])) >= 10)
        assert [place(payload)[1] for payload in peer.received[link]] == list(range(30, 40))


async def test_offset_and_time_must_both_be_passed(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 10, rounds=3)
        probe = await peer.receiver(start_at("trades", "@earliest"), credit=30)
        await peer.until(lambda: len(peer.received.get(probe, [])) == 30)
        places = [place(payload) for payload in peer.received[probe]]
        early_ms, late_ms = places[0][2] - 1, places[9][2]
        for offset, time_ms in ((14, early_ms), (14, late_ms), (2, late_ms)):
            expected = [number for _, number, stamp in places if number > offset and stamp > time_ms]
            link = await peer.receiver(start_at("trades", f"{offset:016x}", time_ms), credit=30)
            await peer.until(lambda link=link, n=len(expected): len(peer.received.get(link, [])) == n)
            assert [place(payload)[1] for payload in peer.received[link]] == expected


async def test_an_offset_beyond_the_end_waits_for_its_successor(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 5)
        link = await peer.receiver(start_at("trades", f"{9:016x}"), credit=30)
        await fill(peer, 7)
        await peer.until(lambda: peer.received.get(link))
        assert [place(payload)[1] for payload in peer.received[link]] == [10, 11]


async def test_credit_is_never_exceeded(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 100)
        link = await peer.receiver(start_at("trades", "@earliest"))
        for credit in (1, 3, 50):
            before = len(peer.received.get(link, []))
            await peer.grant(link, credit)
            await peer.until(lambda want=before + credit: len(peer.received.get(link, [])) == want)
            assert link.credit == 0


async def test_drain_sends_what_there_is_and_gives_the_rest_back(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 25)
        link = await peer.receiver(start_at("trades", "@earliest"))
        link.drain(1000)
        await peer.flush()
        await peer.wait(Drained)
        assert len(peer.received[link]) == 25
        assert link.credit == 0
        peer.history.clear()
        link.drain(10)  # nothing left: the answer comes at once
        await peer.flush()
        await peer.wait(Drained)
        await peer.grant(link, 5)
        await fill(peer, 5)
        await peer.until(lambda: len(peer.received[link]) == 30)


async def test_an_agnostic_receiver_reads_all_partitions_each_in_order(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        live = await peer.receiver("wide", credit=1000)
        sender = await peer.sender("wide")
        for number in range(40):
            await peer.send(sender, [message(b"%d" % number)])
            await peer.states(sender, number + 1)
        old = await peer.receiver(start_at("wide", "@earliest"), credit=1000)
        for link in (live, old):
            await peer.until(lambda link=link: len(peer.received.get(link, [])) == 40)
            places = [place(payload) for payload in peer.received[link]]
            for partition in "0123":
                assert [o for name, o, _ in places if name == partition] == list(range(10))


async def test_partitions_added_later_are_read_by_open_links(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        link = await peer.receiver("wide", credit=1000)
        await node.add_partition(node.logs["wide"], "4")
        node.ring()
        sender = await peer.sender("wide", "4")
        await peer.send(sender, [message(b"new")])
        await peer.until(lambda: peer.received.get(link))
        assert place(peer.received[link][0])[:2] == ("4", 0)


async def test_events_go_out_settled_when_asked_so(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        await fill(peer, 10)
        link = await peer.receiver(start_at("trades", "@earliest"), credit=10, snd_settle_mode=1)
        await peer.until(lambda: len(peer.received.get(link, [])) == 10)
        assert link.unsettled == 0
        connection = next(iter(node.listener._connections))
        ours = next(own for own in connection.endpoints if own.role == "sender")
        assert ours.unsettled == 0


async def test_a_detached_receiver_leaves_nothing_behind(node: SingleNode) -> None:
    async with Peer(node.port) as peer:
        links = [await peer.receiver("wide", credit=10) for _ in range(5)]
        assert all(replica._readers for replica in node.logs["wide"].values())
        for link in links:
            link.close()
        await peer.flush()
        await eventually(lambda: not any(replica._readers for replica in node.logs["wide"].values()))
        assert node.listener.counters.links_open == 0


async def test_an_agnostic_link_is_told_once_of_partitions_that_came(node: SingleNode) -> None:
    """On the next transfer, whichever partition it is from; bound links have nothing to be told."""
    name = "event-streams-associated-partitions-changed"
    async with Peer(node.port) as peer:
        agnostic = await peer.receiver("wide", credit=1000)
        bound = await peer.receiver("wide", "1", credit=1000)
        sender = await peer.sender("wide", "1")
        await peer.send(sender, [message(b"before")])
        await peer.until(lambda: peer.received.get(agnostic))
        await node.add_partition(node.logs["wide"], "4")
        node.ring()
        await peer.send(sender, [message(b"first"), message(b"second")])
        await peer.until(lambda: len(peer.received.get(agnostic, [])) == 3)
        told = [decode_message(payload).delivery_annotations.get(name) for payload in peer.received[agnostic]]
        assert told[0] is told[2] is None
        assert list(told[1].elements) == ["0", "1", "2", "3", "4"]
        assert [decode_message(payload).body for payload in peer.received[agnostic]] == [b"before", b"first", b"second"]
        await peer.until(lambda: len(peer.received.get(bound, [])) == 3)
        assert not any(name in decode_message(payload).delivery_annotations for payload in peer.received[bound])
