"""Nonsense for every port of a node: frames, logins, the calls of nodes, requests for metrics. From a seed.

`python -m tests.attacks.fuzz SEED COUNT AMQP_PORT RPC_PORT HTTP_PORT PROXIED_PORT` tries COUNT conversations, a few at
a time, and ends when the node has ended each of them, or they were given up. What is looked for is judged beside it: a
node that dies, grows, stands still, or turns an honest client away. A conversation that keeps mostly to the rules goes
deepest: the frames come from the generator that the engine's own tests use (`tests/unit/amqp/hostile.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import sys
from collections.abc import Callable, Iterator

from holdfast.amqp import symbol
from holdfast.amqp.framing.handshake import AMQP_HEADER, SASL_HEADER, TLS_HEADER, frame, performative
from node.listener.connections.proxy_header import SIGNATURE
from tests.attacks import wire
from tests.unit.amqp import hostile

AT_ONCE = 8
SPOKEN_S = 0.3
"""For what the node has to say behind the last word; most conversations end by themselves before."""

HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MECHANISMS = ("ANONYMOUS", "PLAIN", "EXTERNAL", "SCRAM-SHA-256", "SCRAM-SHA-512-PLUS", "XOAUTH2", "", "x" * 300)

Words = Iterator[bytes]


def spoil(rng: random.Random, data: bytes) -> bytes:
    """Some bytes changed, cut off, or said twice."""
    made = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 3, 20))):
        if made:
            made[rng.randrange(len(made))] = rng.randrange(256)
    if rng.random() < 0.2:
        del made[rng.randrange(len(made) + 1) :]
    if rng.random() < 0.1:
        made += made[: rng.randrange(len(made) + 1)]
    return bytes(made)


def frames(rng: random.Random) -> Words:
    peer = hostile.HostilePeer(rng, rng.choice((0.0, 0.02, 0.2)))
    yield peer.open()
    for _ in range(rng.randrange(40)):
        said = b"".join(peer.anything() for _ in range(rng.randrange(1, 30)))
        yield spoil(rng, said) if rng.random() < 0.05 else said


def values(rng: random.Random) -> Words:
    """Attaches with properties and filters that nest, repeat, and count more than there is."""
    yield wire.opening()
    peer = hostile.HostilePeer(rng, 0.0)
    for handle in range(rng.randrange(30)):
        deep: object = []
        for _ in range(rng.choice((0, 5, 31, 60))):
            deep = [deep] * rng.choice((1, 1, 2)) if len(repr(deep)) < 4000 else [deep]
        maps = {symbol("a"): rng.choice((deep, peer.value(), [[]] * rng.randrange(3000), "x" * rng.randrange(20_000)))}
        said = wire.attach(
            f"l{handle}", handle, "log", receives=rng.random() < 0.5, filters=rng.choice((None, maps)), properties=maps
        )
        yield spoil(rng, said) if rng.random() < 0.3 else said


def login(rng: random.Random) -> Words:
    yield rng.choice((SASL_HEADER, SASL_HEADER, TLS_HEADER, AMQP_HEADER))
    for _ in range(rng.randrange(12)):
        code = rng.choice((0x41, 0x41, 0x43, 0x40, 0x42, 0x44, 0x99))
        reply = rng.choice((b"", b"\0ann\0pencil", b"n,,n=ann,r=x", rng.randbytes(rng.choice((10, 3000, 9000)))))
        said = frame(1, performative(code, [symbol(rng.choice(MECHANISMS)) if code == 0x41 else reply, reply, "host"]))
        yield spoil(rng, said) if rng.random() < 0.4 else said
    yield AMQP_HEADER + frame(0, performative(0x10, ["late"]))


def proxied(rng: random.Random) -> Words:
    """A header of a proxy, mostly a good one, and AMQP behind it."""
    family = rng.choice((0x11, 0x11, 0x21, 0x31, 0x00, rng.randrange(256)))
    rest = rng.randbytes(rng.choice((12, 12, 36, 216, 0, 5, 1024, 1025, 60_000)))
    size = len(rest) if rng.random() < 0.8 else rng.randrange(1 << 16)
    command = rng.choice((0x21, 0x21, 0x20, rng.randrange(256)))
    said = SIGNATURE + struct.pack(">BBH", command, family, size) + rest
    said = rng.choice((said, said, said, b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"))
    yield spoil(rng, said) if rng.random() < 0.3 else said
    yield from rng.choice((frames, login, noise))(rng)


def calls(rng: random.Random) -> Words:
    """HTTP/2 as gRPC speaks it, or nearly."""
    yield HTTP2_PREFACE if rng.random() < 0.9 else rng.randbytes(rng.randrange(200))
    yield b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"  # settings
    for _ in range(rng.randrange(40)):
        body = rng.randbytes(rng.choice((0, 4, 30, 5000)))
        length = len(body) if rng.random() < 0.8 else rng.randrange(1 << 24)
        kind, flags, stream = rng.randrange(12), rng.randrange(256), rng.choice((0, 1, 3, 2**31 - 1))
        yield struct.pack(">I", length)[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + body


def requests(rng: random.Random) -> Words:
    method = rng.choice((b"GET", b"HEAD", b"POST", b"", b"G" * 9000))
    path = rng.choice((b"/metrics", b"/health/live", b"/health/ready", b"/" + rng.randbytes(50), b"*"))
    said = method + b" " + path + rng.choice((b" HTTP/1.1", b" HTTP/9", b"")) + b"\r\nX: " + rng.randbytes(30)
    for part in (said, rng.choice((b"\r\n\r\n", b"", b"\r\n" * 5000, b"\0"))):
        yield spoil(rng, part) if rng.random() < 0.3 else part


def noise(rng: random.Random) -> Words:
    for _ in range(rng.randrange(1, 6)):
        yield rng.randbytes(rng.choice((1, 8, 100, 70_000)))


KINDS: dict[str, tuple[str, Callable[[random.Random], Words]]] = {
    "frames": ("amqp", frames),
    "values": ("amqp", values),
    "login": ("amqp", login),
    "amqp-noise": ("amqp", noise),
    "proxied": ("proxied", proxied),
    "calls": ("rpc", calls),
    "rpc-noise": ("rpc", noise),
    "requests": ("http", requests),
    "http-noise": ("http", noise),
}
WEIGHTS = (8, 3, 3, 1, 3, 3, 1, 1, 1)


async def converse(rng: random.Random, port: int, words: Words) -> None:
    with contextlib.suppress(OSError, TimeoutError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        listening = asyncio.create_task(_listen(reader))
        try:
            async with asyncio.timeout(20):
                for said in words:
                    writer.write(said)
                    await writer.drain()
                    if rng.random() < 0.2:
                        await asyncio.sleep(0)
            if rng.random() < 0.5 and writer.can_write_eof():
                writer.write_eof()
            await asyncio.wait({listening}, timeout=SPOKEN_S)
        finally:
            listening.cancel()
            writer.transport.abort()


async def _listen(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(1 << 18):
            pass


async def run(seed: int, count: int, ports: dict[str, int]) -> dict[str, int]:
    """How many conversations of each kind there were."""
    done = dict.fromkeys(KINDS, 0)
    numbers = iter(range(seed, seed + count))

    async def worker() -> None:
        for number in numbers:
            rng = random.Random(number)
            (kind,) = rng.choices(list(KINDS), WEIGHTS)
            where, make = KINDS[kind]
            await converse(rng, ports[where], make(rng))
            done[kind] += 1

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    return done


if __name__ == "__main__":
    first, many, *given = map(int, sys.argv[1:])
    print(asyncio.run(run(first, many, dict(zip(("amqp", "rpc", "http", "proxied"), given, strict=True)))))
