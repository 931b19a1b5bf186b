"""`holdfast chaos`: break a cluster on purpose, and find out whether it kept its promises."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast import extras
from holdfast.cli.shared.command_frame import CommandFrame, command_frame, terminate_like_interrupt
from holdfast.cli.shared.errors import EXIT_FAILED, CliError
from holdfast.cli.shared.spark import check_spark

if TYPE_CHECKING:
    from chaos.cannot_run import CannotRun
    from chaos.cluster.provisioned.cluster import Provisioned
    from chaos.matrix import NotRun, Part, Site
    from chaos.run import ChaosRun

EXIT_NOTHING_PROVEN = 6
"""The run says neither that promises were kept nor that one was broken."""

_below = click.option(
    "--dir", "below", type=click.Path(file_okay=False, path_type=Path), default=Path("var/chaos"), show_default=True,
    help="Keep runs below this directory, each in its own.",
)  # fmt: skip
_directory = click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
_nodes = click.option("--nodes", type=click.IntRange(1, 7), default=3, show_default=True, help="Make so many nodes.")
_seed = click.option(
    "--seed", type=int, default=None, help="Draw everything from this seed (default: drawn, and told)."
)
_INVENTORY = (
    click.option("--inventory", type=click.Path(path_type=Path), default=None, metavar="FILE_OR_DIR",
                 help="Hurt the nodes of this Ansible inventory, over SSH; TLS and login are for its cluster."),
    click.option("--listener", default="", metavar="NAME",
                 help="Let clients use this listener of those nodes (default: the first)."),
    click.option("--ansible", type=click.Path(path_type=Path), default=None, metavar="DIR",
                 help="Look for ansible-inventory here (default: on the PATH)."),
    click.option("--vault-password-file", type=click.Path(path_type=Path), default=None, metavar="FILE",
                 help="Open the inventory's secrets by this file."),
)  # fmt: skip


def _of_inventory(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that describe the nodes of an inventory."""
    for option in reversed(_INVENTORY):
        command = option(command)
    return command


@click.group()
def chaos() -> None:
    """Break a cluster on purpose: run, matrix, replay, report, serve, list.

    A run starts node processes of its own on this machine, behind a Toxiproxy server, and leaves none behind; or it
    goes to the nodes of an Ansible inventory, and leaves them as they were.
    Exit status: 0 every promise kept, 1 a promise broken, 6 nothing proven (no data, no fault, or a checker broke).
    """


def _check() -> None:
    for part in ("chaos", "node"):
        if (lacking := extras.missing(part)) is not None:
            raise CliError(lacking)


@chaos.command("run")
@click.option("--workload", required=True, metavar="W", help="Choose what clients do: see `chaos list`.")
@click.option("--faults", required=True, metavar="F,F", help="Choose what goes wrong: see `chaos list`.")
@_nodes
@click.option(
    "--time",
    "seconds",
    type=click.FloatRange(min=1),
    default=20.0,
    show_default=True,
    help="Let faults come for so many seconds.",
)
@_seed
@click.option(
    "--partitions", type=click.IntRange(1, 50), default=2, show_default=True, help="Give each log so many partitions."
)
@click.option(
    "--rate",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="Let each producer publish so many events a second.",
)
@click.option(
    "--keys",
    type=click.IntRange(0, 1000),
    default=0,
    show_default=True,
    help="Let each producer of W1 publish by so many keys; 0: it names its partition.",
)
@click.option(
    "--durability",
    type=click.Choice(["fsync", "replicated"]),
    default="fsync",
    show_default=True,
    help="Run nodes with this durability.",
)
@click.option(
    "--defect", default="", metavar="NAME", help="Give nodes a deliberate fault, to see whether it is noticed."
)
@click.option("--abort-if", metavar="COMMAND", default=None, help="End early once this shell command succeeds.")
@_of_inventory
@_below
@command_frame(servers=False, login=True)
def run_command(
    frame: CommandFrame, workload: str, faults: str, nodes: int, seconds: float, seed: int | None, partitions: int,
    rate: int, keys: int, durability: str, defect: str, abort_if: str | None, inventory: Path | None, listener: str,
    ansible: Path | None, vault_password_file: Path | None, below: Path,
) -> None:  # fmt: skip
    """Run a workload under faults, judge it, and write a page that tells it."""
    _check()
    from chaos.run import RunPlan

    wanted = tuple(one.strip().upper() for one in faults.split(",") if one.strip())
    drawn = random.SystemRandom().randrange(1 << 31) if seed is None else seed
    plan = RunPlan(workload.upper(), wanted, seconds, drawn, nodes, partitions, rate, keys, durability, defect)
    if inventory is None:
        _refuse_without_inventory()
        _run(frame, plan, below, abort_if)
        return
    _refuse_given("nodes", "durability", "defect", without="nodes that the run has started: leave it, or --inventory")
    from chaos.run import CannotRun

    try:
        plan = replace(plan, inventory=str(inventory))
        plan.check()
        provisioned = _provisioned(frame, inventory, listener, ansible, vault_password_file)
    except CannotRun as error:
        raise CliError(str(error)) from error
    _run(frame, replace(plan, nodes=len(provisioned.hosts)), below, abort_if, provisioned)


def _refuse_without_inventory() -> None:
    _refuse_given("ansible", "listener", "vault_password_file", without="--inventory")


def _refuse_given(*names: str, without: str) -> None:
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            word = name.replace("_", "-")
            raise click.UsageError(f"--{word} means nothing without {without}")


def _provisioned(
    frame: CommandFrame, path: Path, listener: str, ansible: Path | None, vault_password_file: Path | None
) -> Provisioned:
    """Provisioned cluster of an inventory. Raises CannotRun."""
    from chaos.cluster.provisioned import inventory
    from chaos.cluster.provisioned.cluster import Provisioned

    hosts = inventory.read(path, ansible, vault_password_file)
    return Provisioned(hosts, lambda text: click.echo(text, err=True), frame.security, listener)


def _run(
    frame: CommandFrame, plan: object, below: Path, abort_if: str | None = None, provisioned: Provisioned | None = None
) -> None:
    from chaos import archive
    from chaos.run import CannotRun, RunPlan

    assert isinstance(plan, RunPlan)
    terminate_like_interrupt()
    try:
        plan.check()
        directory = archive.new_directory(below, plan)
        frame.output.say(plan.command)
        done = archive.run_and_report(
            plan, directory, say=frame.output.say, abort_if=abort_if, provisioned=provisioned
        )  # fmt: skip
    except CannotRun as error:
        raise _not_run(error) from error
    _tell(frame, done)


def _tell(frame: CommandFrame, done: ChaosRun) -> None:
    judgement = done.judgement
    frame.output.result(
        {
            "result": str(judgement.result),
            "why": judgement.why,
            "command": done.plan.command,
            "directory": str(done.directory),
            "verdicts": {one.checker: str(one.result) for one in judgement.verdicts},
        }
    )
    rows = [
        [one.checker, one.title, str(one.result), f"{one.judged:,}", f"{one.violations:,}"]
        for one in judgement.verdicts
    ]
    frame.output.table("", ["checker", "promise", "verdict", "judged>", "violations>"], rows)
    if not frame.output.as_json:
        for one in judgement.verdicts:
            for anomaly in one.anomalies[:3]:
                frame.output.say(f"{one.checker}: {anomaly.what}")
            if one.error:
                frame.output.say(f"{one.checker}: {one.error}")
        frame.output.say(f"{judgement.result}: {judgement.why}")
        if (page := done.directory / "report.html").exists():
            frame.output.say(f"the page: {page}")
    _exit(str(judgement.result))


def _not_run(error: CannotRun) -> CliError:
    """Error for a run that was broken off and has shown nothing, or that could not begin, which the command mends."""
    from chaos.cannot_run import BrokenOff

    return CliError(str(error), exit_code=EXIT_NOTHING_PROVEN if isinstance(error, BrokenOff) else EXIT_FAILED)


def _exit(result: str) -> None:
    if result != "PASSED":
        sys.exit(EXIT_FAILED if result == "FAILED" else EXIT_NOTHING_PROVEN)


@chaos.command("matrix")
@click.option("--full", is_flag=True, help="Run every workload under every fault, and compounds, which takes hours.")
@click.option(
    "--time",
    "seconds",
    type=click.FloatRange(min=1),
    default=None,
    help="Let faults come for so many seconds in each run.",
)
@click.option(
    "--workload", "workloads", default="", metavar="W,W", help="Run only cells of this workload (default: of all)."
)
@click.option("--part", default="1/1", metavar="K/N", show_default=True,
              help="Run only every N-th of them, from the K-th, with the seeds of the whole matrix.")  # fmt: skip
@_seed
@_of_inventory
@_below
@command_frame(servers=False, login=True)
def matrix_command(
    frame: CommandFrame, full: bool, seconds: float | None, workloads: str, part: str, seed: int | None,
    inventory: Path | None, listener: str, ansible: Path | None, vault_password_file: Path | None, below: Path,
) -> None:  # fmt: skip
    """Run many, one after the other; a short choice of them without --full."""
    _check()
    from chaos import matrix
    from chaos.run import CannotRun

    terminate_like_interrupt()
    cells = matrix.chosen(matrix.full() if full else matrix.SHORT, _workloads(workloads), _part(part))
    if not cells:
        raise click.UsageError(f"there is no cell in part {part}: the cells are fewer than the parts")
    drawn = random.SystemRandom().randrange(1 << 31) if seed is None else seed
    each_s = seconds or (matrix.FULL_S if full else matrix.SHORT_S)
    site: Site | None = None
    told: list[ChaosRun | NotRun] = []

    def done(one: ChaosRun | NotRun) -> None:
        told.append(one)
        if isinstance(one, matrix.NotRun):
            frame.output.say(f"  not run: {one.why}")
        else:
            frame.output.say(f"  {one.judgement.result}: {one.judgement.why}")

    try:
        if inventory is None:
            _refuse_without_inventory()
        else:
            site = matrix.look(str(inventory), _provisioned(frame, inventory, listener, ansible, vault_password_file))
        worst = matrix.run(cells, below, seconds=each_s, seed=drawn, say=frame.output.say, done=done, site=site)
    except CannotRun as error:
        raise _not_run(error) from error
    frame.output.result(
        {
            "result": str(worst),
            "runs": [_row(one) for one in told],
            "left_out": [
                {"workload": cell.workload, "faults": cell.faults, "nodes": cell.nodes, "why": why}
                for why, those in (matrix.left_out(cells, site).items() if site is not None else ())
                for cell in those
            ],
        }
    )
    _exit(str(worst))


def _row(one: ChaosRun | NotRun) -> dict[str, str]:
    from chaos.matrix import NotRun

    if isinstance(one, NotRun):
        return {"command": one.plan.command, "result": "NODATA", "why": one.why}
    return {"command": one.plan.command, "result": str(one.judgement.result), "directory": str(one.directory)}


def _workloads(text: str) -> list[str]:
    from chaos.workloads.catalogue import WORKLOADS

    wanted = [one.strip().upper() for one in text.split(",") if one.strip()]
    if unknown := [one for one in wanted if one not in WORKLOADS]:
        raise click.UsageError(f"--workload: {', '.join(unknown)} is none; there are {', '.join(WORKLOADS)}")
    return wanted


def _part(text: str) -> Part:
    from chaos.matrix import Part

    number, _, of = text.partition("/")
    try:
        return Part(int(number), int(of))
    except ValueError as error:
        raise click.UsageError(f"--part {text}: {error}; 2/3 is every third cell from the second on") from None


@chaos.command("replay")
@_directory
@_below
@command_frame(servers=False)
def replay_command(frame: CommandFrame, directory: Path, below: Path) -> None:
    """Run again what a past run was: the same plan and draw. What the machine's timing adds is its own."""
    _check()
    from chaos import archive
    from chaos.run import CannotRun

    try:
        plan = archive.plan_in(directory)
    except CannotRun as error:
        raise CliError(str(error)) from error
    _run(frame, plan, below)


@chaos.command("report")
@_directory
@click.option("--elle", type=click.Path(dir_okay=False, path_type=Path), default=None, metavar="FILE",
              help="Write the history as Jepsen does (EDN), too, for Elle.")  # fmt: skip
@click.option("--spark", is_flag=True, help="Judge it on Spark, and draw no page; so large histories are, anyway.")
@command_frame(servers=False)
def report_command(frame: CommandFrame, directory: Path, elle: Path | None, spark: bool) -> None:
    """Judge a past run anew from its history, and write its page again."""
    _check()
    from chaos import archive
    from chaos.run import CannotRun

    on_spark = spark or archive.is_large(directory)
    if on_spark and elle is not None:
        raise click.UsageError("--elle needs a history that fits into memory")
    try:
        done = _judged_by_spark(directory) if on_spark else archive.load(directory)
    except CannotRun as error:
        raise CliError(str(error)) from error
    if not on_spark:
        archive.tell(done)
    if elle is not None:
        from chaos.history import elle as export

        frame.output.say(f"{elle}: {export.write(done.history, elle):,} operations")
    _tell(frame, done)


def _judged_by_spark(directory: Path) -> ChaosRun:
    check_spark()
    from chaos import archive
    from pipeline.session import session

    return archive.judged_by_spark(directory, session("chaos"))


@chaos.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen on this address.")
@click.option("--port", type=click.IntRange(0, 65535), default=8099, show_default=True, help="Listen on this port.")
@_below
@command_frame(servers=False)
def serve_command(frame: CommandFrame, host: str, port: int, below: Path) -> None:
    """Show past runs in the browser, until Ctrl-C."""
    _check()
    from chaos.report import serve

    below.mkdir(parents=True, exist_ok=True)
    with serve.server(below, host, port) as server:
        frame.output.say(f"http://{host}:{server.server_address[1]}/")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


@chaos.command("list")
@command_frame(servers=False)
def list_command(frame: CommandFrame) -> None:
    """List the workloads, the faults, and the promises that are judged."""
    _check()
    from chaos.checkers.all import CHECKERS
    from chaos.faults.catalogue import CATALOGUE
    from chaos.workloads.catalogue import WORKLOADS

    rows = [[name, one.title] for name, one in WORKLOADS.items()]
    rows += [[name, title] for name, (title, _) in CATALOGUE.items()]
    rows += [[one.id, one.title] for one in CHECKERS]
    frame.output.result(dict(rows))
    frame.output.table("", ["name", "what"], rows)
