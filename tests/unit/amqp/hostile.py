"""A peer that mostly keeps to the protocol and sometimes does not: `python -m tests.unit.amqp.hostile SEED COUNT`.

Runs in a process of its own (see test_hostile.py): what it looks for is a crash of the C library, and an exception
that a peer can cause. The owner's side acts at random too: accepts, refuses, holds, settles late, closes in any state.
"""

from __future__ import annotations

import faulthandler
import random
import sys
from typing import Any

from holdfast.amqp import (
    ACCEPTED,
    RELEASED,
    Declared,
    Described,
    Engine,
    Error,
    LinkOpened,
    LinkRequested,
    Modified,
    ReceiverLink,
    Rejected,
    SenderLink,
    Settlements,
    Transactional,
    Transfers,
    symbol,
    ubyte,
    uint,
    ulong,
    ushort,
)
from tests.unit.amqp.wire import AMQP_HEADER, frame

LIMITS = (0, 1, 2, 255, 65535, 2**31 - 1, 2**31, 2**32 - 1)


class HostilePeer:
    """Makes frames. Its tables are what it believes about the connection."""

    def __init__(self, rng: random.Random, hostility: float) -> None:
        self.rng = rng
        self.hostility = hostility
        self.channels: dict[int, dict[int, tuple[str, bool]]] = {}
        self.next_id: dict[int, int] = {}
        self.unfinished: dict[tuple[int, int], tuple[int, bool]] = {}

    def open(self) -> bytes:
        return AMQP_HEADER + frame(0, 0x10, ["peer", "host", uint(self.rng.choice((512, 4096, 65536)))])

    def anything(self) -> bytes:
        """One frame, or what looks like one."""
        rng = self.rng
        if rng.random() < self.hostility:
            return self.nonsense()
        if not self.channels or rng.random() < 0.03:
            return self.begin()
        channel = rng.choice(list(self.channels))
        makers = (self.attach, self.detach, self.flow, self.transfer, self.disposition)
        if rng.random() < 0.01:
            del self.channels[channel]
            return frame(channel, 0x17, [])
        return rng.choices(makers, (10, 4, 25, 45, 16))[0](channel)

    def begin(self) -> bytes:
        channel = self.rng.randrange(4)
        if channel in self.channels:
            return b""
        self.channels[channel] = {}
        self.next_id[channel] = self.rng.choice((0, 2**32 - 3))
        window = uint(self.rng.choice((1, 2048, 2**31)))
        return frame(channel, 0x11, [None, uint(self.next_id[channel]), window, uint(2048)])

    def attach(self, channel: int) -> bytes:
        handles, handle = self.channels[channel], self.rng.randrange(8)
        link = (f"link-{self.rng.randrange(6)}", self.rng.random() < 0.5)
        if (handle in handles and self.rng.random() > 0.05) or link in handles.values():
            return b""
        handles[handle] = link
        modes = [ubyte(self.rng.randrange(3)), ubyte(self.rng.randrange(2))]
        target = Described(ulong(0x30), []) if self.rng.random() < 0.2 else Described(ulong(0x29), ["log"])
        ends = [Described(ulong(0x28), ["log"]), target]
        count = uint(self.rng.choice((0, 2**32 - 2)))
        return frame(channel, 0x12, [link[0], uint(handle), link[1], *modes, *ends, None, None, count])

    def detach(self, channel: int) -> bytes:
        handles = self.channels[channel]
        if not handles:
            return b""
        handle = self.rng.choice(list(handles))
        del handles[handle]
        self.unfinished.pop((channel, handle), None)
        return frame(channel, 0x16, [uint(handle), self.rng.random() < 0.7])

    def flow(self, channel: int) -> bytes:
        handles = list(self.channels[channel]) or [None]
        handle = self.rng.choice(handles)
        window, credit = self.rng.choice((0, 5, 2048, 2**31)), self.rng.choice((0, 3, 50, 1000))
        fields = [uint(0), uint(window), uint(0), uint(100), None if handle is None else uint(handle)]
        acquires = {symbol("txn-id"): b"txn"} if self.rng.random() < 0.02 else None
        flags = [self.rng.random() < 0.2, False]
        return frame(channel, 0x13, [*fields, uint(0), uint(credit), uint(0), *flags, acquires])

    def transaction(self) -> Described:
        """A transactional state, mostly a good one."""
        rng = self.rng
        descriptor = ulong(0x34) if rng.random() < 0.9 else symbol("amqp:transactional-state:list")
        outcome = rng.choice((None, None, Described(ulong(rng.choice((0x23, 0x24, 0x25, 0x26, 0x27))), [])))
        txn_id = rng.choice((b"txn", b"other")) if rng.random() < 0.95 else self.value()
        return Described(descriptor, rng.choice(([txn_id], [txn_id, outcome])))

    def transfer(self, channel: int) -> bytes:
        wrong = self.rng.random() < 0.002  # on a link on which the other end sends
        senders = [handle for handle, (_, receiver) in self.channels[channel].items() if receiver == wrong]
        if not senders:
            return b""
        handle, rng = self.rng.choice(senders), self.rng
        begun = self.unfinished.pop((channel, handle), None)
        if begun is None:
            begun = self.next_id[channel], rng.random() < 0.2
            self.next_id[channel] = (begun[0] + 1) % 2**32
            aborted = False
        else:
            aborted = rng.random() < 0.2
        more = rng.random() < 0.4 and not aborted
        if more:
            self.unfinished[channel, handle] = begun
        state = self.transaction() if rng.random() < 0.3 else None
        fields = [uint(handle), uint(begun[0]), b"tag", uint(0), begun[1], more, None, state, False, aborted]
        return frame(channel, 0x14, fields, rng.randbytes(rng.choice((0, 10, 400, 3000))))

    def disposition(self, channel: int) -> bytes:
        rng = self.rng
        first, code = rng.randrange(30), rng.choice((0x23, 0x24, 0x24, 0x25, 0x26, 0x27, 0x33, 0x34))
        last = uint(first + rng.choice((0, 1, 10)))
        state = self.transaction() if rng.random() < 0.4 else Described(ulong(code), [])
        return frame(channel, 0x15, [rng.random() < 0.8, uint(first), last, rng.random() < 0.6, state])

    def nonsense(self) -> bytes:
        """A frame with fields out of nowhere, sometimes with bytes flipped."""
        rng = self.rng
        code = rng.choice((0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x40, 0x99))
        fields = [self.value() for _ in range(rng.randrange(15))]
        made = bytearray(frame(rng.choice((0, 0, 1, 300)), code, fields, rng.randbytes(rng.randrange(50))))
        if rng.random() < 0.3:
            made[rng.randrange(len(made))] = rng.randrange(256)
        return bytes(made)

    def value(self, depth: int = 0) -> Any:
        rng = self.rng
        makers: list[Any] = [
            lambda: None,
            lambda: rng.random() < 0.5,
            lambda: uint(rng.choice(LIMITS)),
            lambda: ulong(rng.choice(LIMITS)),
            lambda: ushort(rng.choice(LIMITS[:5])),
            lambda: ubyte(rng.randrange(4)),
            lambda: rng.choice(("", "log", "link-1")),
            lambda: symbol(rng.choice(("", "amqp:accepted:list"))),
            lambda: rng.randbytes(rng.randrange(40)),
        ]
        if depth < 3:
            makers += [
                lambda: [self.value(depth + 1) for _ in range(rng.randrange(5))],
                lambda: {symbol(f"k{number}"): self.value(depth + 1) for number in range(rng.randrange(3))},
                lambda: Described(ulong(rng.choice((0x1D, 0x24, 0x25, 0x27, 0x28, 0x29, 0x30))), self.value(depth + 1)),
            ]
        return rng.choice(makers)()


class HostileOwner:
    """Does what an owner may do, at random moments."""

    def __init__(self, rng: random.Random, engine: Engine) -> None:
        self.rng = rng
        self.engine = engine
        self.links: list[Any] = []
        self.held: list[tuple[ReceiverLink, Any]] = []
        self.awaiting: list[tuple[SenderLink, int]] = []

    def notice(self) -> None:
        for event in self.engine.events():
            if isinstance(event, LinkRequested):
                self.links.append(event.link)
                chance = self.rng.random()
                if chance < 0.8:
                    event.link.accept()
                elif chance < 0.9:
                    event.link.refuse(Error("amqp:not-found", "no", {"a": uint(3)}))
                if isinstance(event.link, ReceiverLink):
                    event.link.grant(self.rng.choice((5, 1000)))
            elif isinstance(event, LinkOpened):
                self.links.append(event.link)
            elif isinstance(event, Transfers):
                assert event.transactions is None or len(event.transactions) == len(event.payloads)
                self.held += [(event.link, delivery) for delivery in event.deliveries]
            elif isinstance(event, Settlements):
                self.awaiting += [(event.link, number) for number, _ in event.outcomes]

    def act(self) -> None:
        rng = self.rng
        for link in self.links:
            if rng.random() < 0.3 and isinstance(link, SenderLink):
                if link.is_open and self.engine.pending_output < 200_000:
                    size = rng.choice((0, 10, 3000, 70_000))
                    count, txn_id = min(link.credit, rng.randrange(20)), rng.choice((None, None, b"txn"))
                    link.send_many([bytes(size)] * count, rng.choice((None, True, False)), txn_id=txn_id)
                if link.drain:
                    link.drained()
            elif rng.random() < 0.3 and isinstance(link, ReceiverLink):
                link.grant(rng.randrange(5))
                if rng.random() < 0.1:
                    link.drain(3)
            if rng.random() < 0.01:
                rng.choice((link.close, link.detach))(rng.choice((None, Error("a:b", "c"))))
            if rng.random() < 0.001:
                link.session.close()
        self.links = [link for link in self.links if link.alive or rng.random() < 0.9]
        if rng.random() < 0.6:
            self.settle(rng.randrange(len(self.held) + 1))

    def settle(self, count: int) -> None:
        self.rng.shuffle(self.held)
        rejected = Rejected(Error("x:y", "z", {"q": 1}))
        states = (ACCEPTED, RELEASED, Modified(True), rejected, Transactional(b"txn", rejected), Declared(b"txn"))
        for link, delivery in self.held[:count]:
            link.settle([delivery], self.rng.choice(states))
        del self.held[:count]
        for sender, number in self.awaiting:  # most of them have been settled
            sender.settle([number], self.rng.choice((None, ACCEPTED, Transactional(b"txn", ACCEPTED))))
        if self.rng.random() < 0.5:
            self.awaiting.clear()


def run(seed: int) -> None:
    rng = random.Random(seed)
    limit = rng.choice((2000, 10**6))
    engine = Engine("server", container_id="n", idle_timeout_s=30, max_message_size=limit, max_links=50)
    peer, owner = HostilePeer(rng, rng.choice((0, 0.001, 0.02))), HostileOwner(rng, engine)
    engine.receive(peer.open())
    now = 1.0
    for _ in range(60):
        said = b"".join(peer.anything() for _ in range(rng.randrange(8)))
        while said:
            size = rng.choice((7, 100, 5000, 100_000))
            engine.receive(said[:size])
            said = said[size:]
            owner.notice()
            if rng.random() < 0.7:
                engine.data_to_send(rng.choice((1, 100, 10**6)))
        owner.act()
        if rng.random() < 0.1:
            now += rng.choice((1, 10))
            engine.tick(now)
        if rng.random() < 0.002:
            rng.choice((engine.close, engine.receive_eof))()
    if rng.random() < 0.5:
        engine.free()
    owner.settle(len(owner.held))


def main() -> None:
    faulthandler.enable()
    first, count = int(sys.argv[1]), int(sys.argv[2])
    for seed in range(first, first + count):
        print("seed", seed, flush=True)
        run(seed)


if __name__ == "__main__":
    main()
