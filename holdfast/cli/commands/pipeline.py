"""`holdfast pipeline`: jobs on Spark over logs. The jobs themselves are in the folder `pipeline`."""

from __future__ import annotations

import datetime

import click

from holdfast.cli.shared.command_frame import CommandFrame, command_frame
from holdfast.cli.shared.errors import EXIT_FAILED
from holdfast.cli.shared.spark import check_spark


@click.group()
def pipeline() -> None:
    """Run jobs on Spark over logs, on this machine; under spark-submit on any cluster of Spark's.

    They need `pip install holdfast-pipeline` and a Java of 17 or 21.
    """


_source = click.option("--source", required=True, metavar="LOG", help="Read this log.")
_parquet = click.option("--parquet", required=True, metavar="DIR", help="Write the Parquet files here.")
_parquet_read = click.option("--parquet", required=True, metavar="DIR", help="Read here what `capture` has written.")
_checkpoint = click.option("--checkpoint", required=True, metavar="DIR", help="Remember here how far the job is.")
_available_now = click.option("--available-now", is_flag=True, help="End where the log ends now; else go on for good.")
_max_events = click.option(
    "--max-events", type=click.IntRange(1), default=None, help="Take so many events into one batch at most."
)


@pipeline.command()
@_source
@_parquet
@_checkpoint
@_available_now
@_max_events
@command_frame()
def capture(
    frame: CommandFrame, source: str, parquet: str, checkpoint: str, available_now: bool, max_events: int | None
) -> None:
    """Write a log into Parquet files, by date and hour, each event once."""
    check_spark("pipeline")
    from pipeline.capture import Capture, run
    from pipeline.session import login_of, session

    job = Capture(
        ",".join(frame.servers), source, parquet, checkpoint, available_now, max_events, login_of(frame.security)
    )
    run(session("capture"), job, frame.output.say)
    frame.output.result({"ok": True})


@pipeline.command()
@_source
@_parquet
@_checkpoint
@click.option("--date", type=click.DateTime(["%Y-%m-%d"]), required=True, help="Set the day of the trades.")
@click.option("--target", default=None, metavar="LOG", help="Write the bars into this log, too, as JSON, each once.")
@click.option("--picture", default=None, metavar="FILE", help="Draw price and volume of the day as PNG.")
@click.option(
    "--late-by",
    default=None,
    metavar="INTERVAL",
    help="Wait so long for late trades (default: 10 minutes; 24 hours with --available-now).",
)
@_available_now
@_max_events
@command_frame()
def bars(
    frame: CommandFrame,
    source: str,
    parquet: str,
    checkpoint: str,
    date: datetime.datetime,
    target: str | None,
    picture: str | None,
    late_by: str | None,
    available_now: bool,
    max_events: int | None,
) -> None:
    """Make one-minute bars (open, high, low, close, volume, VWAP) per symbol of a log of trades."""
    check_spark("pipeline")
    from pipeline.bars import Bars, run
    from pipeline.session import login_of, session

    job = Bars(
        server=",".join(frame.servers),
        source=source,
        parquet=parquet,
        checkpoint=checkpoint,
        date=date.date(),
        picture=picture,
        available_now=available_now,
        late_by=late_by,
        max_events=max_events,
        target=target,
        login=login_of(frame.security),
    )
    run(session("bars"), job, frame.output.say)
    frame.output.result({"ok": True})


@pipeline.command()
@_parquet_read
@click.option("--target", required=True, metavar="LOG", help="Write the events into this log.")
@click.option(
    "--writer", default=None, metavar="NAME", help="Write under this name, under which the same is not written twice."
)
@click.option("--same-partitions", is_flag=True, help="Write each event into the partition that it had.")
@command_frame()
def replay(frame: CommandFrame, parquet: str, target: str, writer: str | None, same_partitions: bool) -> None:
    """Write captured Parquet files into a log, in their order, all of them or none."""
    check_spark("pipeline")
    from pipeline.replay import Replay, run
    from pipeline.session import login_of, session

    login = login_of(frame.security)
    job = Replay(",".join(frame.servers), parquet, target, writer, same_partitions, login)
    run(session("replay"), job, frame.output.say)
    frame.output.result({"ok": True})


@pipeline.command()
@click.option("--captured", default=None, metavar="DIR", help="Read here what `capture` has written of the whole log.")
@click.option(
    "--history", default=None, metavar="DIR", help="Read here, as Parquet, tables of what clients have recorded."
)
@click.option(
    "--value",
    default=None,
    metavar="SQL",
    help="Name a value by this expression over `body` (default: its first word).",
)
@click.option("--report", default=None, metavar="DIR", help="Write all anomalies there, as Parquet.")
@command_frame(servers=False)
def audit(
    frame: CommandFrame, captured: str | None, history: str | None, value: str | None, report: str | None
) -> None:
    """Find what is lost, twice, or out of order. Exit status 0 only if nothing is, and there was something to judge."""
    if captured is None and history is None:
        raise click.UsageError("give --captured, --history, or both")
    check_spark("pipeline")
    from pipeline.audit import PASSED, VALUE, Audit, run
    from pipeline.session import session

    verdict = run(session("audit"), Audit(captured, history, value or VALUE, report), frame.output.say)
    names = ("result", "looked_at", "anomalies")
    checks = {name: dict(zip(names, found, strict=True)) for name, found in verdict.checks.items()}
    frame.output.result({"result": verdict.result, "checks": checks})
    if verdict.result != PASSED:
        raise click.exceptions.Exit(EXIT_FAILED)
