"""The lag of a group: what is not known of a partition is not left out of the sum without a word."""

from __future__ import annotations

import pytest

from holdfast.cli.commands.group import _lag, _show
from holdfast.cli.shared.command_frame import CommandFrame
from holdfast.cli.shared.output import Output
from holdfast.cli.shared.settings import ClientZooKeeperSection


@pytest.mark.parametrize(
    ("lag", "known", "unknown", "said"),
    [
        (990, 990, 0, "990"), (0, 0, 0, "0"), (None, 258, 1, "258 + unknown in 1 partition"),
        (None, 0, 3, "unknown in 3 partitions"),
    ],
)  # fmt: skip
def test_the_sum_says_what_it_leaves_out(lag: int | None, known: int, unknown: int, said: str) -> None:
    assert _lag({"lag": lag, "known_lag": known, "unknown_partitions": unknown}) == said


def test_a_partition_without_a_position_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {
            "partition": str(number), "active": False, "member": None, "epoch": 0, "committed_offset": None,
            "committed_ms": None, "earliest_position": 10, "end_position": 742, "lag": lag,
        }
        for number, lag in enumerate([258, None])
    ]  # fmt: skip
    described = {"group": "audit", "lag": None, "known_lag": 258, "unknown_partitions": 1, "partitions": rows}
    _show(CommandFrame(Output(as_json=False), [], 1.0, ClientZooKeeperSection()), "trades", described)
    shown = capsys.readouterr().out
    assert "lag 258 + unknown in 1 partition\n" in shown
    assert "no committed position in partition 1 (732 events stored)" in shown
