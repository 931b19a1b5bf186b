"""`holdfast producer`: the idempotent producers that a log's partitions remember."""

from __future__ import annotations

import datetime
from typing import Any

import click

from holdfast.cli.shared.command_frame import CommandFrame, command_frame, run

COLUMNS = ["partition", "producer group>", "owner level>", "last number>", "last offset>", "remembered>", "last active"]


@click.group()
def producer() -> None:
    """Show idempotent producers: list, describe."""


@producer.command("list")
@click.argument("log")
@click.option("--partition", default=None, help="List only those of this partition.")
@command_frame()
def list_producers(frame: CommandFrame, log: str, partition: str | None) -> None:
    """List the idempotent producers of LOG, by partition."""

    async def work() -> list[dict[str, Any]]:
        async with frame.admin() as admin:
            return await admin.list_producers(log, partition=partition)

    producers = run(work())
    frame.output.result({"log": log, "producers": producers})
    frame.output.table("", COLUMNS, map(_row, producers))


@producer.command("describe")
@click.argument("log")
@click.argument("partition")
@click.argument("producer_group", type=click.IntRange(min=0))
@command_frame()
def describe_producer(frame: CommandFrame, log: str, partition: str, producer_group: int) -> None:
    """Show what PARTITION of LOG remembers of the producer PRODUCER_GROUP."""

    async def work() -> dict[str, Any]:
        async with frame.admin() as admin:
            return await admin.describe_producer(log, partition, producer_group)

    found = run(work())
    frame.output.result({"log": log, **found})
    frame.output.table("", COLUMNS, [_row(found)])
    if not frame.output.as_json and found.get("last_sequence") is not None:
        frame.output.say(
            f"to go on as this producer: holdfast produce {log} --partition {partition} "
            f"--producer-group {producer_group}"
        )


def _row(entry: dict[str, Any]) -> list[Any]:
    active_ms = entry.get("last_active_ms")
    when = "-" if active_ms is None else datetime.datetime.fromtimestamp(active_ms / 1000).isoformat(" ", "seconds")
    names = ("partition", "producer_id", "epoch", "last_sequence", "last_offset", "remembered")
    return [*("-" if entry.get(name) is None else str(entry[name]) for name in names), when]
