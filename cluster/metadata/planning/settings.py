"""Settings of the planner and of moves, as the metadata replicate them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, cast

from cluster.metadata import metadata_pb2 as pb
from cluster.metadata.types import BALANCES, Balance, BalanceSettings, CommandRefused, CommandResult, Ok

MARKS = ("disk_low", "disk_target", "disk_high")
NUMBERS = ("replace_after_s", "pace_bytes_per_s", *MARKS)

LONGEST_REPLACE_AFTER_S = 30 * 86_400

LOWEST_PACE, HIGHEST_PACE = 1 << 20, 16 << 30
"""Bytes a second: below it moves would never end, and above it no network is."""


class BalancedState(Protocol):
    """The part of the metadata that the settings are in."""

    balance: BalanceSettings


def set_balance(state: BalancedState, command: pb.SetBalance) -> CommandResult:
    """Change what the command names."""
    changes: dict[str, Any] = {name: getattr(command, name) for name in NUMBERS if command.HasField(name)}
    if command.balance:
        changes["balance"] = command.balance
    settings = replace(state.balance, **changes)
    if (fault := settings_fault(settings)) is not None:
        raise CommandRefused("invalid-argument", fault)
    state.balance = settings
    return Ok()


def settings_fault(settings: BalanceSettings) -> str | None:
    """Fault of settings, with what they may be; None: they have none."""
    if settings.balance not in BALANCES:
        return f"balance {settings.balance[:40]!r}: must be {', '.join(BALANCES)}"
    if not 1 <= settings.replace_after_s <= LONGEST_REPLACE_AFTER_S:
        return f"replace_after_s {settings.replace_after_s}: must be 1 to {LONGEST_REPLACE_AFTER_S} seconds"
    if not LOWEST_PACE <= settings.pace_bytes_per_s <= HIGHEST_PACE:
        return f"pace_bytes_per_s {settings.pace_bytes_per_s}: must be {LOWEST_PACE} (1 MiB) to {HIGHEST_PACE} (16 GiB)"
    low, target, high = (getattr(settings, name) for name in MARKS)
    if not 1 <= low < target < high <= 99:
        return (
            f"disk_low {low}, disk_target {target}, disk_high {high}: must be percentages from 1 to 99, each above the "
            "one before, so that what moves does not come back"
        )
    return None


def settings_to_pb(settings: BalanceSettings) -> pb.Balance | None:
    """Settings in a checkpoint; None while nobody has changed any."""
    if settings == BalanceSettings():
        return None
    return pb.Balance(
        balance=settings.balance,
        replace_after_s=settings.replace_after_s,
        disk_high=settings.disk_high,
        disk_low=settings.disk_low,
        disk_target=settings.disk_target,
        pace_bytes_per_s=settings.pace_bytes_per_s,
    )


def settings_from_pb(told: pb.Balance) -> BalanceSettings:
    balance = cast(Balance, told.balance)
    marks = told.disk_high, told.disk_low, told.disk_target
    pace = told.pace_bytes_per_s or BalanceSettings().pace_bytes_per_s  # 0 would divide by zero
    return BalanceSettings(balance, told.replace_after_s, *marks, pace)
