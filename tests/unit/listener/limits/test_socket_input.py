"""What of one read is taken in at once: events as long as the turn lasts, of attaches a piece."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from node.listener.config import ListenerConfig
from node.listener.connections import socket_input as intakes
from node.listener.connections.socket_input import ConnectionInput
from node.listener.limits.fair_scheduling import Turns
from node.listener.limits.memory_budgets import Accounts, Budget
from tests.unit.listener.support.peer import eventually

PIECE = 10


class Engine:
    kept_bytes = keep_limit = pending_output = 0
    crowded = False

    def __init__(self) -> None:
        self.taken = b""

    def receive_some(self, data: bytes) -> int:
        self.taken += data[:PIECE]
        return min(PIECE, len(data))


class Parts:
    """A connection and its listener, as the intake sees them."""

    def __init__(self) -> None:
        self.engine: Any = Engine()
        self.config = ListenerConfig()
        self.turns = Turns()
        self.unanswered_bytes = self.answer_bytes = 0
        self.is_blocked = False

    def input_share(self, usual_bytes: int) -> int:
        return usual_bytes

    def began(self, first: bytes) -> bool:
        return True

    def handle_events(self) -> None:
        pass

    def fail(self, error: BaseException) -> None:
        raise error


class Socket:
    is_reading = True

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


async def test_a_socket_with_much_is_read_on_in_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came can be on its way to the followers by then."""
    monkeypatch.setattr(intakes, "TURN_BYTES", 10 * PIECE)
    socket: Any = Socket()
    parts = Parts()
    intake = ConnectionInput(parts, parts, Budget(Accounts()))
    intake.open(socket)
    read = bytes(5 * PIECE)
    for _ in range(20):
        intake.take(read)
        assert socket.is_reading
        await eventually(lambda: not parts.turns._due)  # a turn for each: that is no reason to wait
    number = parts.turns.number
    intake.take(read)
    assert socket.is_reading
    intake.take(read)
    assert not socket.is_reading
    intake.take(read)  # that the system had given already
    assert len(parts.engine.taken) == 23 * len(read)
    await eventually(lambda: parts.turns.number > number)
    assert socket.is_reading
    intake.take(read)
    assert socket.is_reading


@pytest.mark.parametrize("crowded", [False, True], ids=["events", "attaches"])
async def test_a_read_of_attaches_waits_behind_its_first_piece_and_one_of_events_does_not(crowded: bool) -> None:
    parts = Parts()
    parts.engine.crowded = crowded
    intake = ConnectionInput(parts, parts, Budget(Accounts()))
    said = bytes(range(5 * PIECE))
    intake.take(said)
    assert len(parts.engine.taken) == (PIECE if crowded else len(said))
    assert intake.waits == crowded
    while intake.waits:
        intake.work_on()
    assert parts.engine.taken == said


async def test_nothing_more_is_taken_in_until_what_was_can_be_answered() -> None:
    parts = Parts()
    intake = ConnectionInput(parts, parts, Budget(Accounts()))
    said = bytes(range(4 * PIECE))
    parts.engine.crowded = True
    intake.take(said)
    parts.is_blocked = True
    await asyncio.sleep(0)
    assert not parts.turns._takers
    assert len(parts.engine.taken) == PIECE
    parts.is_blocked = False
    intake.go_on()
    intake.go_on()
    assert list(parts.turns._takers) == [intake], "it stands in the queue once"
    await eventually(lambda: not intake.waits)
    assert parts.engine.taken == said


async def test_nothing_more_is_taken_in_while_the_peer_takes_no_output() -> None:
    """Sessions that began and ended keep their channels until their answers are encoded: there are 256."""
    socket: Any = Socket()
    parts = Parts()
    parts.engine.crowded = True
    intake = ConnectionInput(parts, parts, Budget(Accounts()))
    intake.open(socket)
    said = bytes(range(4 * PIECE))
    intake.take(said)
    intake.write_paused, intake.output_bytes = True, parts.config.pending_output_limit_bytes + 1
    intake.read_or_pause()
    await eventually(lambda: not parts.turns._takers)
    assert len(parts.engine.taken) <= 2 * PIECE
    assert not socket.is_reading
    intake.take(b"more")
    intake.write_paused = False
    intake.read_or_pause()
    await eventually(lambda: not intake.waits)
    assert parts.engine.taken == said + b"more"
    assert socket.is_reading


async def test_a_read_that_comes_when_nothing_is_taken_in_waits_whole() -> None:
    parts = Parts()
    parts.is_blocked = True
    intake = ConnectionInput(parts, parts, Budget(Accounts()))
    intake.take(b"abc")
    assert intake.waits
    assert not parts.turns._takers
    parts.is_blocked = False
    intake.go_on()
    await eventually(lambda: not intake.waits)
    assert parts.engine.taken == b"abc"
