"""The attacks: each a coroutine on one connection, until its time is over or the node ends it.

`python -m tests.attacks NAME PORT SECONDS CONNECTIONS LOG` runs one and prints what it managed. A connection that the
node closes is opened again: an attacker does not give up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from holdfast import protocol
from holdfast.amqp import Message as Encoded
from holdfast.amqp import symbol
from holdfast.amqp.messages.message import encode_message
from tests.attacks import wire
from tests.attacks.wire import ATTACH, FLOW, RawWire

LINKS = 75
"""Of each of four connections: 300 together."""

UNFINISHED_BYTES = 4 * 1024 * 1024 - 64 * 1024
CHUNK = bytes(60_000)
EMPTY_LISTS = 15_000

EVENT = b"\x00Su\xa0\x01x"
UNREAD_BURST = 500
UNREAD_PAUSE_S = 0.02
"""In which a node takes in and answers a burst, or most of its credit is left."""

Attack = Callable[[RawWire, str], Awaitable[int]]
"""(connection, log) -> how often it did what it does. Ends with the connection, else it is cancelled."""


async def unfinished_messages(peer: RawWire, log: str) -> int:
    for handle in range(LINKS):
        await peer.say(wire.attach(f"l{handle}", handle, log))
    await peer.until(lambda: peer.seen[FLOW] >= LINKS)
    sent = 0
    for _ in range(UNFINISHED_BYTES // len(CHUNK)):
        for handle in range(LINKS):
            await peer.say(wire.transfer(handle, handle, CHUNK, more=True))
            sent += len(CHUNK)
    await peer.until(lambda: False)
    return sent


async def nested_properties(peer: RawWire, log: str) -> int:
    lists = {symbol("x"): [[] for _ in range(EMPTY_LISTS)]}
    for handle in range(1000):
        await peer.say(wire.attach(f"l{handle}", handle, log, properties=lists))
    await peer.until(lambda: False)
    return 1000


async def churn(peer: RawWire, log: str) -> int:
    pair = b"".join(wire.attach(f"l{n}", 0, log) + wire.detach(0) for n in range(4000))
    done = 0
    while not peer.ended:
        await peer.say(pair)
        done += 4000
    return done


async def never_settles(peer: RawWire, log: str) -> int:
    for handle in range(50):
        await peer.say(wire.attach(f"r{handle}", handle, log, receives=True, filters=wire.earliest()))
    await peer.until(lambda: peer.seen[ATTACH] >= 50)
    for handle in range(50):
        await peer.say(wire.credit(handle, 2**31 - 1))
    await peer.until(lambda: False)
    return peer.seen[wire.TRANSFER]


async def many_groups(peer: RawWire, log: str) -> int:
    for handle in range(3000):
        group = f"{id(peer)}-{handle}"
        bound = {symbol(protocol.LINK_PARTITION): symbol("0"), symbol(protocol.LINK_CONSUMER_GROUP): group}
        await peer.say(wire.attach(f"g{handle}", handle, log, receives=True, properties=bound))
    await peer.until(lambda: False)
    return peer.seen[ATTACH]


async def many_producers(peer: RawWire, log: str) -> int:
    terms = dict.fromkeys(map(symbol, protocol.PRODUCER_NAMES))
    for handle in range(3000):
        bound = {symbol(protocol.LINK_PARTITION): symbol("0"), **terms}
        await peer.say(wire.attach(f"p{handle}", handle, log, properties=bound))
    await peer.until(lambda: False)
    return peer.seen[ATTACH]


async def answers_to_nowhere(peer: RawWire, log: str) -> int:
    await peer.say(wire.attach("m", 0, protocol.MANAGEMENT_ADDRESS))
    await peer.until(lambda: peer.seen[FLOW] >= 1)
    request = encode_message(
        Encoded(
            message_id="x", reply_to="nowhere", application_properties={"type": "node", "operation": "list"}, body=b""
        )
    )
    sent = 0
    while not peer.ended:
        allowed = 16 + peer.seen[FLOW] - 1
        await peer.until(lambda seen=sent: 16 + peer.seen[FLOW] - 1 > seen)
        await peer.say(b"".join(wire.transfer(0, number, request) for number in range(sent, allowed)))
        sent = max(sent, allowed)
    return sent


async def unread_sessions(peer: RawWire, log: str) -> int:
    peer.reading.clear()
    pairs = (wire.begin(1) + wire.end(1)) * 1000
    done = 0
    while not peer.ended:
        await peer.say(pairs)
        done += 1000
    return done


async def unread_settlements(peer: RawWire, log: str) -> int:
    """Events in turns on two links, so that no two settlements are said as one; the node's credit is guessed."""
    for handle in range(2):
        await peer.say(wire.attach(f"l{handle}", handle, log))
    await peer.until(lambda: peer.seen[FLOW] >= 2)
    peer.reading.clear()
    sent = 0
    while not peer.ended:
        await peer.say(b"".join(wire.transfer(n % 2, n % 2**32, EVENT) for n in range(sent, sent + UNREAD_BURST)))
        sent += UNREAD_BURST
        await asyncio.sleep(UNREAD_PAUSE_S)
    return sent


ATTACKS: dict[str, Attack] = {
    "unfinished-messages": unfinished_messages,
    "nested-properties": nested_properties,
    "churn": churn,
    "never-settles": never_settles,
    "many-groups": many_groups,
    "many-producers": many_producers,
    "answers-to-nowhere": answers_to_nowhere,
    "unread-sessions": unread_sessions,
    "unread-settlements": unread_settlements,
}


async def run(name: str, port: int, seconds: float, connections: int, log: str) -> int:
    """All connections of one attack; how often they were opened."""
    opened = 0

    async def one() -> None:
        nonlocal opened
        while True:
            opened += 1
            with contextlib.suppress(OSError):
                async with RawWire(port) as peer:
                    await ATTACKS[name](peer, log)
            await asyncio.sleep(0.05)  # an attacker's own pace

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*(one() for _ in range(connections)))
    return opened
