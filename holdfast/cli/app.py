"""The `holdfast` command: what there is, and nothing else; each command lives in its own file."""

from __future__ import annotations

import click

from holdfast.cli.commands.access.rules import connection_string, rule
from holdfast.cli.commands.access.users_and_grants import grant, user, whoami
from holdfast.cli.commands.bench import bench
from holdfast.cli.commands.cluster import cluster
from holdfast.cli.commands.consume import consume
from holdfast.cli.commands.demo import demo
from holdfast.cli.commands.emulator import emulator
from holdfast.cli.commands.group import group
from holdfast.cli.commands.log import log
from holdfast.cli.commands.node import node
from holdfast.cli.commands.pipeline import pipeline
from holdfast.cli.commands.produce import produce
from holdfast.cli.commands.producer import producer
from holdfast.cli.commands.trials.chaos import chaos
from holdfast.cli.commands.txn import txn

EPILOG = """
\b
Five minutes:
  holdfast cluster up --dir var/cluster --detach
  holdfast log create greetings --partitions 4
  echo hello | holdfast produce greetings
  holdfast consume greetings --from earliest --until-end
  holdfast cluster down --dir var/cluster
"""


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="holdfast")
def main() -> None:
    """Use Holdfast, a replicated event log that speaks AMQP 1.0.

    Commands that talk to a cluster find it by --server, HOLDFAST_SERVER, or the settings file. Each takes --json.

    \b
    Exit status: 0 done, 1 failed, 2 wrong usage, 3 no such log or node, 4 no server reached, 5 took too long.
    """


COMMANDS = (
    bench, chaos, cluster, connection_string, consume, demo, emulator, grant, group, log, node, pipeline, produce,
    producer, rule, txn, user, whoami,
)  # fmt: skip

for command in COMMANDS:
    main.add_command(command)
