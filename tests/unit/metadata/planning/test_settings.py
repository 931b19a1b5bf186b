"""Settings of the planner: replicated, kept in checkpoints, and refused where they would let replicas come and go."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.metadata import BalanceSettings, Ok, Refusal, set_balance
from cluster.metadata.codec import decode_checkpoint, encode_checkpoint
from cluster.metadata.planning.settings import settings_from_pb, settings_to_pb
from cluster.metadata.state import MetadataState


def test_settings_are_changed_one_by_one_and_kept() -> None:
    state = MetadataState()
    assert state.balance == BalanceSettings("repair", 900, 85, 75, 80, 64 << 20)
    before = encode_checkpoint(state, 14)
    assert state.execute(set_balance("on")) == Ok()
    assert state.execute(set_balance(replace_after_s=20, disk_high=90, pace_bytes_per_s=32 << 20)) == Ok()
    assert state.balance == BalanceSettings("on", 20, 90, 75, 80, 32 << 20)
    assert decode_checkpoint(encode_checkpoint(state, 15)).balance == state.balance
    assert state.execute(set_balance("repair", replace_after_s=900, disk_high=85, pace_bytes_per_s=64 << 20)) == Ok()
    assert encode_checkpoint(state, 14) == before


def test_settings_without_a_pace_have_the_usual_one() -> None:
    told = settings_to_pb(BalanceSettings(balance="on"))
    assert told is not None
    told.ClearField("pace_bytes_per_s")
    assert settings_from_pb(told) == BalanceSettings(balance="on")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"balance": "always"}, "balance 'always': must be off, repair, on"),
        ({"replace_after_s": 0}, "replace_after_s 0: must be 1 to 2592000 seconds"),
        ({"replace_after_s": 2592001}, "replace_after_s 2592001"),
        ({"disk_low": 80}, "disk_low 80, disk_target 80, disk_high 85: must be percentages from 1 to 99"),
        ({"disk_target": 85}, "each above the one before, so that what moves does not come back"),
        ({"disk_low": 0}, "disk_low 0"),
        ({"disk_high": 100}, "disk_high 100"),
        ({"disk_high": -1}, "disk_high -1"),
        ({"pace_bytes_per_s": 0}, "pace_bytes_per_s 0: must be 1048576 (1 MiB) to 17179869184 (16 GiB)"),
        ({"pace_bytes_per_s": (16 << 30) + 1}, "pace_bytes_per_s 17179869185"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, Any], told: str) -> None:
    state = MetadataState()
    result = state.execute(set_balance(**changes))
    assert isinstance(result, Refusal)
    assert result.code == "invalid-argument"
    assert told in result.message
    assert state.balance == BalanceSettings()
