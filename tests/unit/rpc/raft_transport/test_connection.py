"""What carries the streams between nodes: messages come out as they went in, and what a peer has us hold is bounded."""

from __future__ import annotations

import asyncio
import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.rpc import options
from cluster.rpc.raft_transport import connection
from cluster.rpc.raft_transport.connection import END, HEARD, MESSAGE, MessageConnection
from cluster.rpc.raft_transport.errors import StreamLost
from tests.unit.rpc.support import SOON_S, until


class Socket:
    """A transport, of which the test is the other end."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_reading = True
        self.is_aborted = False

    def set_write_buffer_limits(self, _: int) -> None:
        """It takes everything."""

    def writelines(self, parts: list[Any]) -> None:
        self.written += map(bytes, parts)

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


def connected(*, answers: bool = True, let_in: bool = True) -> tuple[MessageConnection, Any]:
    made, socket = MessageConnection(answers=answers), Socket()
    made.connection_made(socket)  # type: ignore[arg-type]
    if let_in:
        made.let_in()
    return made, socket


def comes(made: MessageConnection, data: bytes, most: int = 1 << 30) -> None:
    """From the system, at most so much at once."""
    while data:
        room = made.get_buffer(-1)
        size = min(len(room), len(data), most)
        assert size, "there is always room"
        room[:size] = data[:size]
        data = data[size:]
        made.buffer_updated(size)


def framed(*messages: bytes, kind: int = MESSAGE) -> bytes:
    return b"".join(struct.pack("<IB", len(message), kind) + message for message in messages)


async def all_of(made: MessageConnection, count: int) -> list[bytes]:
    got = [await made.read() for _ in range(count)]
    assert all(one is not None and one[0] == MESSAGE for one in got)
    return [bytes(one[1]) for one in got if one is not None]


SIZES = st.one_of(
    st.integers(0, 300),
    st.integers(connection.LARGE_BYTES - 10, connection.LARGE_BYTES + 10),
    st.integers(connection.BUFFER_BYTES - 10, connection.BUFFER_BYTES + 10),
    st.integers(0, 3 * connection.BUFFER_BYTES),
)


CUTS = st.lists(st.integers(1, 400_000), min_size=1, max_size=6).filter(lambda cuts: max(cuts) > 9000)


@given(st.lists(SIZES, max_size=12), CUTS, st.booleans())
def test_messages_come_out_whole_however_the_system_cuts_them(sizes: list[int], cuts: list[int], early: bool) -> None:
    async def run() -> None:
        made, _ = connected(let_in=False)
        messages = [random.Random(number).randbytes(size) for number, size in enumerate(sizes)]
        hello, data = framed(b"hello" * 100), framed(*messages)
        kept = 3 if early else 0  # bytes that came before the dialler was let in
        comes(made, hello + data[:kept], 77)
        made.let_in()
        data = data[kept:]
        got: list[bytes] = []
        while data:
            for cut in cuts:
                comes(made, data[:cut])
                data = data[cut:]
            while made._unread:
                got += await all_of(made, 1)
        while made._unread:
            got += await all_of(made, 1)
        assert got == [b"hello" * 100, *messages]

    asyncio.run(run())


async def test_what_is_written_has_its_length_and_its_kind_before_it() -> None:
    made, socket = connected()
    await made.write(MESSAGE, b"one", bytearray(b"two"))
    await made.write(END, b"")
    assert b"".join(socket.written) == framed(b"one", b"two") + framed(b"", kind=END)


@pytest.mark.parametrize("let_in", [False, True], ids=["a stranger", "a node"])
async def test_a_message_that_is_too_large_ends_the_connection_before_it_has_memory(let_in: bool) -> None:
    made, socket = connected(let_in=let_in)
    most = options.MAX_MESSAGE_BYTES if let_in else options.MAX_HELLO_BYTES
    comes(made, struct.pack("<IB", most, MESSAGE))
    assert not socket.is_aborted
    made, socket = connected(let_in=let_in)
    comes(made, struct.pack("<IB", most + 1, MESSAGE))
    assert socket.is_aborted
    assert await made.read() is None
    assert "at most" in str(made.lost)
    with pytest.raises(StreamLost):
        await made.write(MESSAGE, b"")


async def test_what_nobody_asks_for_stays_with_the_peer() -> None:
    made, socket = connected()
    large = bytes(options.UNREAD_BYTES // 4 - connection.OVERHEAD_BYTES)
    for _ in range(4):
        comes(made, framed(large))
        assert socket.is_reading
    comes(made, framed(b"x"))
    assert not socket.is_reading
    await all_of(made, 2)
    assert not socket.is_reading
    await all_of(made, 1)
    assert socket.is_reading
    assert await all_of(made, 2) == [large, b"x"]


async def test_who_listens_says_that_something_came_but_not_for_each_thing(monkeypatch: pytest.MonkeyPatch) -> None:
    made, socket = connected()
    for _ in range(100):
        comes(made, framed(b"message"))
    assert b"".join(socket.written) == framed(b"", kind=HEARD)
    monkeypatch.setattr(options, "HEARD_PERIOD_S", 0.0)
    comes(made, framed(bytes(connection.LARGE_BYTES))[:100])
    assert b"".join(socket.written) == 2 * framed(b"", kind=HEARD), "the message need not be whole"


async def test_who_dialled_hears_that_and_nothing_is_to_be_read_of_it() -> None:
    made, socket = connected(answers=False)
    before_s = made.heard_s
    await until(lambda: asyncio.get_running_loop().time() > before_s, "a later time", SOON_S)
    comes(made, framed(b"", kind=HEARD))
    assert made.heard_s > before_s
    assert not made._unread
    assert not socket.written


async def test_a_writer_waits_for_room_and_hears_that_there_will_be_none() -> None:
    made, _ = connected()
    made.pause_writing()
    writing = asyncio.ensure_future(made.write(MESSAGE, b"one"))
    await asyncio.sleep(0)
    assert not writing.done()
    made.resume_writing()
    await writing
    made.pause_writing()
    writing = asyncio.ensure_future(made.write(MESSAGE, b"two"))
    await asyncio.sleep(0)
    made.connection_lost(OSError("it broke"))
    with pytest.raises(StreamLost, match="it broke"):
        await writing
    assert await made.read() is None


async def test_what_came_before_the_end_is_still_read() -> None:
    made, _ = connected()
    comes(made, framed(b"last words", b"cut off")[:-1])
    made.connection_lost(None)
    assert await all_of(made, 1) == [b"last words"]
    assert await made.read() is None


async def test_what_is_handed_over_comes_in_order_and_in_the_turn_that_read_it() -> None:
    made, _ = connected()
    taken: list[bytes] = []
    comes(made, framed(b"one", b"two"))
    over = asyncio.ensure_future(made.hand_over(lambda message: taken.append(bytes(message))))
    comes(made, framed(b"three"))  # before whoever takes has begun
    await until(lambda: len(taken) == 3, "what had come before")
    large = bytes(2 * connection.LARGE_BYTES)
    comes(made, framed(b"four", large) + framed(b"five"))
    assert taken == [b"one", b"two", b"three", b"four", large, b"five"], "at once"
    assert not made._unread
    comes(made, framed(b"", kind=HEARD))
    assert not over.done()
    comes(made, framed(b"end", kind=END) + framed(b"too late"))
    await over
    assert len(taken) == 6


async def test_what_had_come_before_is_not_overtaken_where_much_of_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was read any more; with the first message that is taken, what waits unread is cut."""
    monkeypatch.setattr(options, "UNREAD_BYTES", 1000)
    made, socket = connected()
    messages = [bytes([number]) * 900 for number in range(8)]
    comes(made, framed(*messages))
    assert not socket.is_reading
    taken: list[bytes] = []
    over = asyncio.ensure_future(made.hand_over(lambda message: taken.append(bytes(message))))
    await until(lambda: len(taken) == len(messages), "all of it")
    assert taken == messages
    made.connection_lost(None)
    await over


async def test_what_is_handed_over_ends_with_the_connection() -> None:
    made, _ = connected()
    taken: list[bytes] = []
    over = asyncio.ensure_future(made.hand_over(lambda message: taken.append(bytes(message))))
    await asyncio.sleep(0)
    comes(made, framed(b"one", b"cut off")[:-1])
    made.connection_lost(None)
    await over
    assert taken == [b"one"]


async def test_messages_of_nothing_are_bounded_too() -> None:
    made, socket = connected()
    nothing = framed(*[b""] * connection.MESSAGES_A_TURN)
    sent = 0
    while socket.is_reading:
        comes(made, nothing)
        sent += connection.MESSAGES_A_TURN
        assert sent * connection.OVERHEAD_BYTES < 2 * options.UNREAD_BYTES
        await asyncio.sleep(0)
    assert len(made._unread) * connection.OVERHEAD_BYTES <= options.UNREAD_BYTES + connection.OVERHEAD_BYTES
    assert len(await all_of(made, sent)) == sent
    assert socket.is_reading


async def test_of_many_small_messages_some_are_cut_in_a_turn() -> None:
    made, socket = connected()
    comes(made, framed(*[b"x"] * 3 * connection.MESSAGES_A_TURN)[:200_000])
    assert len(made._unread) == connection.MESSAGES_A_TURN
    assert not socket.is_reading
    await until(lambda: socket.is_reading, "the rest", SOON_S)
    assert len(made._unread) == 3 * connection.MESSAGES_A_TURN


async def test_of_a_stranger_nothing_is_looked_at_behind_its_first_message() -> None:
    made, socket = connected(let_in=False)
    comes(made, framed(b"hello", b"one", b"two"))
    assert not socket.is_reading
    assert [bytes(message) for _, message in made._unread] == [b"hello"]
    assert await all_of(made, 1) == [b"hello"]
    made.let_in()
    assert await all_of(made, 2) == [b"one", b"two"]
    assert socket.is_reading


async def test_what_comes_behind_the_end_is_dropped_unseen() -> None:
    made, socket = connected()
    waiting = asyncio.ensure_future(made.wait_lost())
    await asyncio.sleep(0)
    comes(made, framed(bytes(100), bytes(2 * connection.LARGE_BYTES), bytes(3)))
    assert not made._unread
    assert made._large is None
    assert socket.is_reading
    made.connection_lost(None)
    await waiting
