"""Messages that belong to transactions: states of transfers, and what a peer may get wrong in them."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest
from cproton import lib

from holdfast.amqp import (
    ACCEPTED,
    Described,
    Dropped,
    LinkDetached,
    LinkRequested,
    ReceiverLink,
    Transactional,
    Transfers,
    errors,
    symbol,
    uint,
    ulong,
)
from holdfast.amqp.framing import frame_scanner
from holdfast.amqp.framing.performatives import BATCH_FORMAT, MAX_STATE_VALUES
from holdfast.amqp.transactions import encode_discharge
from tests.unit.amqp.transactions.support import (
    ACCEPTED_VALUE,
    GARBAGE,
    OTHER,
    SYMBOL,
    TXN,
    control,
    disposition,
    outcomes,
    state,
    told,
    transfer,
)
from tests.unit.amqp.wire import LoopbackWire, RawPeer, each, frame, message, only, payloads_of


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("chunk", [None, 1, 13])
def test_each_message_comes_with_its_transaction(settled: bool, chunk: int | None) -> None:
    wire = LoopbackWire(server={"max_frame_size": 512}, chunks=chunk)
    near, far = wire.producer()
    sent = [(message(b"%d" % number), (None, TXN, OTHER)[number % 3]) for number in range(12)]
    sent += [(message(b"x" * 3000), TXN), (message(b"y" * 3000), None), (message(b"z"), TXN)]
    for payload, txn_id in sent:
        near.send_many([payload], settled, txn_id=txn_id)
    heard, _ = wire.talk()
    assert told(heard) == sent
    for event in each(heard, Transfers):
        far.settle(event.deliveries, Transactional(TXN, ACCEPTED))
    assert far.unsettled == 0
    _, answered = wire.talk()
    expected = [] if settled else [(number, Transactional(TXN, ACCEPTED)) for number in range(len(sent))]
    assert outcomes(answered) == expected


def test_messages_outside_of_transactions_come_without_a_list() -> None:
    wire = LoopbackWire()
    near, _ = wire.producer()
    near.send_many([message()] * 3)
    heard, _ = wire.talk()
    assert only(heard, Transfers).transactions is None


@pytest.mark.parametrize("settle_mode", [0, 1, 2])
def test_links_of_every_settle_mode_tell_the_transaction(settle_mode: int) -> None:
    wire = LoopbackWire()
    near, _ = wire.producer(snd_settle_mode=settle_mode)
    near.send_many([message()] * 2, txn_id=TXN)
    near.send_many([message()])
    heard, _ = wire.talk()
    event = only(heard, Transfers)
    assert event.transactions == (TXN, TXN, None)
    assert len(event.deliveries) == (0 if settle_mode == 1 else 3)


def test_every_frame_of_a_message_names_its_transaction() -> None:
    wire = LoopbackWire(server={"max_frame_size": 512})
    near, _ = wire.producer()
    near.send_many([message(b"x" * 3000)], txn_id=TXN)
    said = RawPeer(wire.client).hear()
    states = [fields[7] for code, fields, _ in said if code == 0x14]
    assert len(states) > 5
    assert all(found.descriptor == 0x34 and found.value == [TXN] for found in states)


@pytest.mark.parametrize("descriptor", [ulong(0x34), SYMBOL])
@pytest.mark.parametrize("fields", [[TXN], [TXN, None], [TXN, ACCEPTED_VALUE], [OTHER], [b""], [b"x" * 32]])
def test_a_state_may_be_written_in_any_way(descriptor: Any, fields: list[Any]) -> None:
    peer = RawPeer()
    link = peer.accepted(credit=10)
    control(peer)
    heard = peer.say(
        transfer(0, b"plain"),
        transfer(1, b"in", of=state(fields, descriptor)),
        transfer(2, b"out", of=ACCEPTED_VALUE),
        transfer(3, b"settled", of=state(fields, descriptor), settled=True),
    )
    assert told(heard) == [(b"plain", None), (b"in", fields[0]), (b"out", None), (b"settled", fields[0])]
    assert link.alive


@pytest.mark.parametrize("descriptor", [ulong(0x34), SYMBOL])
def test_a_message_that_comes_in_pieces_is_in_the_transaction_of_its_first(descriptor: Any) -> None:
    peer = RawPeer()
    peer.accepted(credit=10)
    control(peer)
    of = state([TXN], descriptor)
    pieces = [
        transfer(0, b"", of=of, more=True),  # a first frame without payload
        peer.transfer(0, b"a", more=True, stated=None),
        peer.transfer(0, b"b", stated=None) + transfer(1, b"plain", tag=b"p"),
        transfer(2, b"c", of=of, more=True) + peer.transfer(2, b"d", stated=None),
    ]
    heard = [event for piece in pieces for event in peer.say(piece)]
    assert told(heard) == [(b"ab", TXN), (b"plain", None), (b"cd", TXN)]


@pytest.mark.parametrize("descriptor", [ulong(0x34), SYMBOL])
def test_states_survive_any_fragmentation(descriptor: Any) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    peer = RawPeer()
    link = peer.accepted(credit=300)
    control(peer)
    stream, sent, number = b"", [], 0
    for number in range(200):
        txn_id = rng.choice((None, TXN, OTHER))
        payload = rng.choice((b"m", b"amqp:transactional-state:list", b"\x00\x53\x34\xc0\x04\x01\xa0\x01x")) * 20
        of = None if txn_id is None else state([txn_id], descriptor)
        cut = rng.randrange(len(payload))
        sent.append((payload, txn_id))
        if cut % 2:
            stream += transfer(number, payload, of=of)
        else:
            stream += transfer(number, payload[:cut], of=of, more=True)
            stream += peer.transfer(number, payload[cut:], stated=None)
    heard: list[Any] = []
    while stream:
        size = rng.choice((1, 2, 20, 300, 5000))
        heard += peer.say(stream[:size])
        stream = stream[size:]
    assert told(heard) == sent, f"seed {seed}"
    assert link.alive


def test_an_aborted_message_leaves_its_transaction_behind() -> None:
    peer = RawPeer()
    peer.accepted(credit=10)
    peer.say(transfer(0, b"a", of=state([TXN]), more=True))
    aborted = peer.transfer(0, b"", stated=None, aborted=True)
    assert told(peer.say(aborted, transfer(1, b"plain"))) == [(b"plain", None)]


@pytest.mark.parametrize("descriptor", [ulong(0x34), SYMBOL])
@pytest.mark.parametrize("fields", [*GARBAGE, {symbol("txn-id"): TXN}, "txn-1"])
@pytest.mark.parametrize("settled", [False, True])
def test_a_transaction_that_cannot_be_read_costs_the_link(descriptor: Any, fields: Any, settled: bool) -> None:
    peer = RawPeer()
    link = peer.accepted(credit=10)
    control(peer)
    heard = peer.say(
        transfer(0, b"good", of=state([TXN])),
        transfer(1, b"bad", of=state(fields, descriptor), settled=settled),
        transfer(2, b"behind"),
    )
    assert told(heard) == [(b"good", TXN)]
    gone = only(heard, LinkDetached)
    assert gone.link is link
    assert gone.local
    assert gone.error is not None
    assert gone.error.condition == errors.INVALID_FIELD
    assert link.unsettled == 1
    link.settle(only(heard, Transfers).deliveries, Transactional(TXN, ACCEPTED))
    said = peer.hear()
    answers = [fields for code, fields, _ in said if code == 0x15]
    states = {n: fields[4] for fields in answers for n in range(fields[1], (fields[2] or fields[1]) + 1)}
    assert states[0].descriptor == 0x34
    assert all(states[number].descriptor == 0x26 for number in ([2] if settled else [1, 2]))  # not kept
    assert 0x16 in [code for code, _, _ in said]


def test_a_state_of_no_encoding_is_not_a_transaction_nobody_named() -> None:
    """A list that is longer than its contents: proton passes it on."""
    peer = RawPeer()
    peer.accepted(credit=10)
    whole = transfer(0, b"m", of=state([TXN]))
    broken = whole.replace(b"\xa0\x05" + TXN, b"\xa0\x09" + TXN)
    heard = peer.say(broken)
    assert payloads_of(heard) == []
    error = only(heard, LinkDetached).error
    assert error is not None
    assert error.condition == errors.INVALID_FIELD


def test_two_messages_of_one_tag_are_not_told_apart_by_it() -> None:
    peer = RawPeer()
    peer.accepted(credit=10)
    control(peer)
    heard = peer.say(
        transfer(0, b"a", tag=b"t", settled=True),
        transfer(1, b"b", tag=b"t", settled=True, of=state([TXN], SYMBOL)),
    )
    assert payloads_of(heard) == []
    assert only(heard, LinkDetached).local


def test_a_state_that_fills_a_frame_takes_no_memory_of_protons() -> None:
    """An array of millions of elements that take no bytes; proton would make each a node of a tree."""
    peer = RawPeer()
    peer.accepted(credit=10)
    bomb = b"\xf0" + (6).to_bytes(4, "big") + (2**31).to_bytes(4, "big") + b"\x40\x00"
    whole = transfer(0, b"m", of=state([b"0123456789"]))
    value = b"\xa0\x0a0123456789"
    assert value in whole
    heard = peer.say(whole.replace(value, bomb[: len(value)].ljust(len(value), b"\x40")))
    assert payloads_of(heard) == []
    assert only(heard, LinkDetached).local


def test_a_batch_behind_a_transaction_that_cannot_be_read_is_not_told() -> None:
    peer = RawPeer()
    link = peer.accepted(credit=10)
    batch = peer.transfer(0, b"batch", stated=BATCH_FORMAT)
    heard = peer.say(batch, transfer(1, b"bad", of=state([])), peer.transfer(2, b"batch", stated=BATCH_FORMAT))
    event = only(heard, Transfers)
    assert (event.link, event.payloads, event.batches) == (link, [b"batch"], (0,))


def test_nothing_of_what_comes_settled_is_kept() -> None:
    wire = LoopbackWire()
    near, far = wire.producer(snd_settle_mode=1)
    near.send_many([message()] * 20, txn_id=TXN)
    heard, _ = wire.talk()
    assert len(payloads_of(heard)) == 20
    assert lib.pn_link_unsettled(far._impl) == 0


def test_what_was_noted_of_a_link_is_not_held_against_the_next() -> None:
    peer = RawPeer()
    link = peer.accepted(credit=10)
    control(peer)
    link.close()
    assert told(peer.say(transfer(0, b"late", tag=b"t", of=state([TXN], SYMBOL)))) == []
    peer.say(frame(0, 0x16, [uint(0), True]))
    again = only(peer.say(peer.attach("another")), LinkRequested).link
    assert isinstance(again, ReceiverLink)
    again.accept()
    again.grant(10)
    peer.hear()
    assert told(peer.say(transfer(1, b"plain", tag=b"t"))) == [(b"plain", None)]


def test_a_peer_that_asks_for_settled_sends_gets_them_in_a_transaction_too() -> None:
    wire = LoopbackWire()
    _, far = wire.consumer(snd_settle_mode=1)
    far.send_many([message()], txn_id=TXN)
    assert far.unsettled == 0
    _, answered = wire.talk()
    assert told(answered) == [(message(), TXN)]


def dropped(events: list[Any]) -> list[bytes]:
    return [txn_id for event in each(events, Dropped) for txn_id in event.transactions]


@pytest.mark.parametrize("descriptor", [ulong(0x34), SYMBOL])
@pytest.mark.parametrize("settled", [False, True])
def test_messages_on_a_link_that_we_have_closed_are_not_lost_to_their_transactions(
    descriptor: Any, settled: bool
) -> None:
    peer = RawPeer()
    link = peer.accepted(credit=10)
    control(peer)
    link.close()
    of = state([TXN], descriptor)
    assert dropped(peer.say(transfer(0, b"a", of=of, settled=settled), transfer(1, b"b", of=of))) == [TXN]
    assert dropped(peer.say(transfer(2, b"plain"))) == []
    heard = peer.say(transfer(3, b"c", of=of, more=True), transfer(4, encode_discharge(TXN, fail=False), handle=9))
    assert dropped(heard) == [TXN]
    assert [type(event) for event in heard] == [Dropped, Transfers]


def test_a_message_too_large_for_its_link_is_not_lost_to_its_transaction() -> None:
    peer = RawPeer(max_message_size=1000)
    link = peer.accepted(credit=10)
    heard = peer.say(
        transfer(0, b"fits", of=state([OTHER])),
        transfer(1, b"x" * 600, of=state([TXN]), more=True),
        peer.transfer(1, b"x" * 600, stated=None),
        transfer(2, b"behind", of=state([OTHER])),
        transfer(3, b"no transaction's"),
    )
    assert told(heard) == [(b"fits", OTHER)]
    assert dropped(heard) == [TXN, OTHER]
    assert only(heard, LinkDetached).link is link
    assert dropped(peer.say(transfer(4, b"late", of=state([TXN])))) == [TXN]


def test_a_large_message_in_pieces_is_dropped_once() -> None:
    peer = RawPeer(max_message_size=1000)
    peer.accepted(credit=10)
    pieces = [transfer(0, b"x" * 600, of=state([TXN]), more=True)]
    pieces += [peer.transfer(0, b"x" * 600, stated=None, more=True) for _ in range(5)]
    pieces += [peer.transfer(0, b"x", stated=None)]
    assert [dropped(peer.say(piece)) for piece in pieces] == [[], [TXN], [], [], [], [], []]


def test_what_comes_beyond_the_credit_or_behind_garbage_is_not_lost_to_its_transaction() -> None:
    peer = RawPeer()
    peer.accepted(credit=2)
    heard = peer.say(*(transfer(number, b"m", of=state([txn])) for number, txn in enumerate((TXN, TXN, OTHER))))
    assert (told(heard), dropped(heard)) == ([(b"m", TXN)] * 2, [OTHER])
    peer = RawPeer()
    peer.accepted(credit=10)
    heard = peer.say(transfer(0, b"bad", of=state([])), transfer(1, b"behind", of=state([TXN])))
    assert (told(heard), dropped(heard)) == ([], [TXN])


@pytest.mark.parametrize("values", [MAX_STATE_VALUES, 2000])
@pytest.mark.parametrize("more", [False, True])
def test_a_symbolic_state_of_too_many_values_names_no_transaction(more: bool, values: int) -> None:
    peer = RawPeer()
    link = peer.accepted(credit=10)
    control(peer)
    heard = peer.say(
        transfer(0, b"plain"),
        transfer(1, b"crowded", of=state([TXN, *[[]] * values], SYMBOL), more=more),
        *([peer.transfer(1, b"end", stated=None)] if more else []),
    )
    assert told(heard) == [(b"plain", None)]
    gone = only(heard, LinkDetached)
    assert gone.link is link
    assert gone.error is not None
    assert gone.error.condition == errors.INVALID_FIELD


@pytest.mark.parametrize(("handle", "tag"), [(None, b"tag"), ("a", b"tag"), (uint(0), None), (None, None)])
def test_a_symbolic_state_is_seen_where_handle_or_tag_are_missing(handle: Any, tag: Any) -> None:
    """proton takes the first link, and no tag."""
    peer = RawPeer()
    peer.accepted(credit=10)
    control(peer)
    fields = [handle, uint(0), tag, uint(0), False, False, None, state([TXN], SYMBOL)]
    heard = peer.say(frame(0, 0x14, fields, b"m"))
    assert told(heard) in ([(b"m", TXN)], []), "not as if it named none"


def test_what_an_unfinished_message_keeps_of_its_state_is_its_transaction() -> None:
    peer = RawPeer()
    peer.accepted(credit=10)
    control(peer)
    many = state([TXN, *[[] for _ in range(1000)]], SYMBOL)
    for link in range(20, 80):
        opened = only(peer.say(peer.attach(f"raw-{link}", link)), LinkRequested).link
        assert isinstance(opened, ReceiverLink)
        opened.accept()
        opened.grant(1)
    peer.hear()
    tracemalloc.start()
    try:
        for link in range(20, 80):
            assert peer.say(transfer(link, b"m", handle=link, of=many, more=True)) == []
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 500_000  # 60 KB each


def test_dispositions_are_looked_at_once_for_a_push(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them asks whether one names a transaction under a symbol."""
    looked = 0

    def counting(said: bytes) -> bool:
        nonlocal looked
        looked += 1
        return False

    monkeypatch.setattr(frame_scanner, "names_transaction", counting)
    wire = LoopbackWire()
    _, far = wire.consumer(credit=1000)
    far.send_many([b"m"] * 500)
    wire.exchange()
    named = Described(symbol("other"), ["amqp:transactional-state:list"])
    said = [disposition(number, named, settled=False) for number in range(500)]
    wire.server.receive(b"".join(said))
    assert looked == 500
