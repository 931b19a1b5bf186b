"""The proof of the main job must be able to fail: each way of losing, changing or swapping events is found."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from holdfast.cli.commands.demo import DEFAULT_FILE
from holdfast.cli.main_job.trades import (
    HEADER,
    Published,
    ReadBack,
    Trade,
    read_trades,
)
from holdfast.cli.shared.errors import CliError
from holdfast.client import ReceivedEvent, encode_event

LINES = [
    b"%d,%s,1.0,100,P,0,0" % (1000 + n, symbol) for n, symbol in enumerate([b"SPY", b"IBM", b"SPY", b"SPY", b"IBM"])
]
TRADES = [Trade(number, line.split(b",")[1].decode(), line) for number, line in enumerate(LINES)]


def event(trade: Trade, run: str = "run") -> ReceivedEvent:
    body = b"%s,%d,%s" % (run.encode(), trade.number, trade.line)
    return ReceivedEvent("0", "00", 0, encode_event(body, trade.symbol), 0)


def judge(back: list[ReceivedEvent]) -> tuple[ReadBack, list[str]]:
    published, read_back = Published(), ReadBack("run")
    for trade in TRADES:
        published.add(trade)
    for item in back:
        read_back.add(item)
    return read_back, read_back.differences(published)


def test_everything_in_order_is_a_success() -> None:
    read_back, problems = judge([event(trade) for trade in TRADES])
    assert problems == []
    assert (read_back.distinct, read_back.copies) == (5, 0)


def test_copies_after_a_failover_are_dropped_and_counted() -> None:
    numbers = [0, 1, 2, 1, 2, 3, 4]
    read_back, problems = judge([event(TRADES[number]) for number in numbers])
    assert problems == []
    assert (read_back.events, read_back.distinct, read_back.copies) == (7, 5, 2)


def test_symbols_may_overtake_each_other_since_they_are_in_different_partitions() -> None:
    assert judge([event(TRADES[number]) for number in (1, 4, 0, 2, 3)])[1] == []


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ([0, 1, 2, 4], "SPY: 3 events published, 2 read back"),
        ([0, 1, 3, 2, 4], "out of order: SPY: number 2 came after 3"),
        ([], "IBM: 2 events published, 0 read back"),
    ],
)
def test_what_is_missing_or_swapped_is_found(numbers: list[int], problem: str) -> None:
    assert problem in judge([event(TRADES[number]) for number in numbers])[1]


def test_a_changed_byte_is_found() -> None:
    changed = Trade(3, "SPY", LINES[3].replace(b"1.0", b"1.1"))
    problems = judge([event(trade) for trade in [*TRADES[:3], changed, TRADES[4]]])[1]
    assert len(problems) == 1
    assert "SPY: the checksums differ" in problems[0]


def test_events_of_another_run_do_not_count() -> None:
    read_back, problems = judge([event(trade, "other") for trade in TRADES])
    assert read_back.strangers == 5
    assert problems


def test_the_trades_file_is_what_the_job_expects() -> None:
    count, symbols = 0, set()
    for trade in read_trades(DEFAULT_FILE):
        count += 1
        symbols.add(trade.symbol)
    assert count == 388_417
    assert symbols == {"AIG", "BAC", "IBM", "SPY"}


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,2\n"))
    with pytest.raises(CliError, match="expected header"):
        list(read_trades(path))
    path.write_bytes(gzip.compress(HEADER + b"\n1,SPY,2\n")[:-9])
    with pytest.raises(CliError, match="cannot be read"):
        list(read_trades(path))
