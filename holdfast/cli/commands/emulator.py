"""`holdfast emulator`: Event Hubs on this machine, with the emulator's contract, and events that stay.

Rules: what the emulator's image takes and says, this takes and says, too: the file with hubs, the health port, the line
that it is up. What it has over it: events survive a restart, a processor needs no second container for its checkpoints,
and `--kill-leader-every` shows what an application does when a node dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from pathlib import Path

import click

from holdfast.cli.emulator.entities import make_hubs, read_entities
from holdfast.cli.emulator.health_port import HealthPort
from holdfast.cli.local_cluster.lifecycle import create, start
from holdfast.cli.local_cluster.processes import EVERYWHERE, LOOPBACK, LocalCluster
from holdfast.cli.shared.command_frame import CommandFrame, command_frame, run, terminate_like_interrupt
from holdfast.cli.shared.errors import EXIT_USAGE, CliError
from holdfast.cli.shared.output import Output
from holdfast.client.admin import AdminClient
from holdfast.client.errors import HoldfastError
from holdfast.client.transport.security.credentials import Security

IMAGE_CONFIG = Path("/Eventhubs_Emulator/ConfigFiles/Config.json")
"""Where the emulator's image looks."""

UP = "Emulator Service is Successfully Up!"
"""Line that tools wait for."""

START_WAIT_S = 60.0
LOOK_S = 0.5
"""Time between two looks at the configuration file and the nodes."""


@click.command()
@click.option(
    "--hubs",
    "hubs",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help=f"Make the hubs of this Config.json, now and when it changes (default: {IMAGE_CONFIG} if it is there).",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("var/emulator"),
    show_default=True,
    help="Keep events and checkpoints here.",
)
@click.option(
    "--bind",
    type=click.Choice([LOOPBACK, EVERYWHERE]),
    default=LOOPBACK,
    show_default=True,
    help="Serve this machine's programs, or everybody who reaches one of its addresses.",
)
@click.option(
    "--amqp-port", type=click.IntRange(1, 65535), default=5672, show_default=True, help="Listen here for AMQP."
)
@click.option(
    "--health-port", type=click.IntRange(1, 65535), default=5300, show_default=True, help="Serve GET /health here."
)
@click.option(
    "--checkpoint-port",
    type=click.IntRange(1, 65535),
    default=10000,
    show_default=True,
    help="Keep processors' checkpoints here, as Blob Storage would.",
)
@click.option(
    "--kill-leader-every",
    metavar="SECONDS",
    type=click.FloatRange(min=1),
    default=None,
    help="Run three nodes, and kill the one of the last two that leads more, again and again; it comes back.",
)
@command_frame(servers=False)
def emulator(
    frame: CommandFrame,
    hubs: Path | None,
    directory: Path,
    bind: str,
    amqp_port: int,
    health_port: int,
    checkpoint_port: int,
    kill_leader_every: float | None,
) -> None:
    """Run Event Hubs on this machine until Ctrl-C, for programs that use its SDKs."""
    terminate_like_interrupt()
    if hubs is None and IMAGE_CONFIG.exists():
        hubs = IMAGE_CONFIG
    wanted = {} if hubs is None else read_entities(hubs)
    nodes = 1 if kill_leader_every is None else 3
    if LocalCluster.exists(directory):
        local = LocalCluster.load(directory, tied=True)
        if len(local.plan.nodes) != nodes:
            raise CliError(
                f"{directory} has {len(local.plan.nodes)} nodes: with --kill-leader-every there are three, without one",
                advice="name another --dir",
                exit_code=EXIT_USAGE,
            )
        _refuse_other_places(local, bind, amqp_port, checkpoint_port)
    else:
        local = create(
            directory, nodes, amqp_port, 0, "emulator", "fsync", checkpoint_port=checkpoint_port, tied=True, bind=bind
        )
    served = Served(local, frame.output, hubs, kill_leader_every)
    with HealthPort(bind, health_port, lambda: served.is_healthy):
        try:
            start(local, frame.output, START_WAIT_S, Security())
            run(served.serve(wanted))
        finally:
            local.stop()


def _refuse_other_places(local: LocalCluster, bind: str, amqp_port: int, checkpoint_port: int) -> None:
    """Refuse an address and ports that are not those of an earlier start, which the data directory keeps."""
    first = local.plan.nodes[0]
    for option, wanted, kept in (
        ("--bind", bind, first.bind),
        ("--amqp-port", str(amqp_port), first.amqp.rpartition(":")[2]),
        ("--checkpoint-port", str(checkpoint_port), first.checkpoints.rpartition(":")[2]),
    ):
        if kept and kept != wanted:
            raise CliError(
                f"{local.directory} was made with {option} {kept}, not {wanted}",
                advice=f"write {option} {kept}, or name another --dir",
                exit_code=EXIT_USAGE,
            )


class Served:
    """The emulator while it runs."""

    def __init__(self, local: LocalCluster, output: Output, config: Path | None, kill_every_s: float | None) -> None:
        self._local, self._output, self._config, self._kill_every_s = local, output, config, kill_every_s
        self._is_up = False

    @property
    def is_healthy(self) -> bool:
        return self._is_up and 2 * len(self._local.running()) > len(self._local.plan.nodes)

    async def serve(self, wanted: dict[str, int]) -> None:
        """Make the hubs, say that it is up, and go on until a signal ends it."""
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        replicas = len(self._local.plan.nodes)
        async with AdminClient(self._local.plan.servers) as admin:
            for line in await make_hubs(admin, wanted, replicas):
                self._output.say(line)
            self._is_up = True
            self._output.say(UP)
            async with asyncio.TaskGroup() as tasks:
                working = [tasks.create_task(self._follow_config(admin, replicas))]
                if self._kill_every_s is not None:
                    working.append(tasks.create_task(self._kill_leaders(admin, self._kill_every_s)))
                await ended.wait()
                self._is_up = False
                for task in working:
                    task.cancel()

    async def _follow_config(self, admin: AdminClient, replicas: int) -> None:
        """Make the hubs of a file that has changed. A mistake in it is told, and changes nothing."""
        if self._config is None:
            return
        seen = _stamp(self._config)
        while True:
            await asyncio.sleep(LOOK_S)
            if (now := _stamp(self._config)) == seen:
                continue
            seen = now
            try:
                for line in await make_hubs(admin, read_entities(self._config), replicas):
                    self._output.say(line)
            except (CliError, HoldfastError) as error:
                self._output.note(f"the hubs stay as they are: {error}")

    async def _kill_leaders(self, admin: AdminClient, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            node = await self._busiest(admin)
            try:
                self._output.say(f"node {node} is killed")
                await asyncio.to_thread(self._local.kill, node)
                await asyncio.sleep(every_s / 2)
                self._output.say(f"node {node} is started again")
                await asyncio.to_thread(start, self._local, self._output, START_WAIT_S, Security())
            except (CliError, HoldfastError) as error:
                self._output.note(f"node {node} does not come back: {error}")

    async def _busiest(self, admin: AdminClient) -> int:
        """The node that leads most partitions, but for the first one: an SDK knows that one's address, and no other."""
        led: Counter[int] = Counter()
        with contextlib.suppress(HoldfastError):
            for log in await admin.list_logs():
                described = await admin.describe_log(log["name"])
                led.update(part["leader"] for part in described["partitions"] if part["leader"])
        first, *others = (node.id for node in self._local.plan.nodes)
        del led[first]
        return max(others, key=lambda node: led[node])


def _stamp(path: Path) -> tuple[int, int] | None:
    """Time of change and size of a file; None: it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
