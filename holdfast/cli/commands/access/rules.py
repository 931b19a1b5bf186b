"""`holdfast rule`, `holdfast connection-string`: the keys with which clients of Event Hubs come in."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.commands.access.users_and_grants import with_admin
from holdfast.cli.shared.command_frame import CommandFrame, command_frame
from holdfast.cli.shared.errors import EXIT_USAGE, CliError


@click.group()
def rule() -> None:
    """Look after shared access rules, which clients of Event Hubs log in by: add, list, rotate, remove."""


@rule.command("add")
@click.argument("name")
@click.option(
    "--claim",
    "claims",
    multiple=True,
    required=True,
    type=click.Choice(["send", "listen", "manage"], case_sensitive=False),
    help="Allow this; may be repeated; manage allows all.",
)
@click.option("--scope", metavar="LOG", default="", help="Allow it on this log only (default: on all).")
@command_frame()
def add_rule(frame: CommandFrame, name: str, claims: tuple[str, ...], scope: str) -> None:
    """Add the rule NAME, with two new keys. The cluster must have an administrator, and every node
    security.secrets_file."""
    told = with_admin(frame, lambda admin: admin.add_rule(name, claims, scope=scope))
    frame.output.result(told)
    if not frame.output.as_json:
        frame.output.say(f"rule {name} is there; `holdfast connection-string {name}` prints how clients come in by it")


@rule.command("rotate")
@click.argument("name")
@command_frame()
def rotate_rule(frame: CommandFrame, name: str) -> None:
    """Give the rule NAME a new primary key. Clients go on with the one before, which is the secondary one now; what was
    the secondary one ends."""
    with_admin(frame, lambda admin: admin.rotate_rule(name))
    frame.output.result({"name": name})
    if not frame.output.as_json:
        frame.output.say(f"rule {name} has a new primary key; give it to all clients before the next rotation")


@rule.command("remove")
@click.argument("name")
@command_frame()
def remove_rule(frame: CommandFrame, name: str) -> None:
    """Remove the rule NAME; links that its keys allowed end."""
    with_admin(frame, lambda admin: admin.remove_rule(name))
    frame.output.result({"removed": name})
    if not frame.output.as_json:
        frame.output.say(f"rule {name} is gone")


@rule.command("list")
@command_frame()
def list_rules(frame: CommandFrame) -> None:
    """List the rules, with what they allow, and where."""
    rules = with_admin(frame, lambda admin: admin.list_rules())
    frame.output.result({"rules": rules})
    rows = ([one["name"], ", ".join(one["claims"]), one["scope"] or "all logs"] for one in rules)
    frame.output.table("", ["rule", "claims", "scope"], rows)


@click.command("connection-string")
@click.argument("name", metavar="RULE")
@click.option("--hub", metavar="LOG", default="", help="Name this log in it, as EntityPath.")
@click.option(
    "--endpoint",
    metavar="HOST[:PORT]",
    default="",
    help="Let clients connect to this name (default: the server that was asked).",
)
@click.option("--secondary", is_flag=True, help="Take the secondary key.")
@click.option(
    "--checkpoints",
    metavar="HOST:PORT",
    default="",
    help="Print the string of the checkpoint store there instead, for a processor's Blob container.",
)
@command_frame()
def connection_string(
    frame: CommandFrame, name: str, hub: str, endpoint: str, secondary: bool, checkpoints: str
) -> None:
    """Print the connection string of RULE, for an SDK of Event Hubs. It holds the rule's key."""
    told = with_admin(frame, lambda admin: admin.rule_keys(name))
    if checkpoints:
        text = _store_string(told, checkpoints, secondary)
    else:
        text = _connection_string(frame, told, hub or told["scope"], endpoint, secondary)
    frame.output.result({"connection_string": text})
    if not frame.output.as_json:
        click.echo(text)


def _connection_string(frame: CommandFrame, told: dict[str, Any], hub: str, endpoint: str, secondary: bool) -> str:
    if told["scope"] not in ("", hub):
        raise CliError(
            f"rule {told['name']!r} is for the log {told['scope']!r}, not for {hub!r}",
            advice="leave --hub out, or take another rule",
            exit_code=EXIT_USAGE,
        )
    if not endpoint:
        endpoint = frame.servers[0]
    parts = [
        f"Endpoint=sb://{endpoint}",
        f"SharedAccessKeyName={told['name']}",
        f"SharedAccessKey={told['secondary' if secondary else 'primary']}",
    ]
    if not frame.security.uses_tls:
        parts.append("UseDevelopmentEmulator=true")  # every SDK's word for a connection without TLS
    if hub:
        parts.append(f"EntityPath={hub}")
    return ";".join(parts)


def _store_string(told: dict[str, Any], checkpoints: str, secondary: bool) -> str:
    """The string of a storage account; its name is that of the rule."""
    parts = [
        "DefaultEndpointsProtocol=http",
        f"AccountName={told['name']}",
        f"AccountKey={told['secondary' if secondary else 'primary']}",
        f"BlobEndpoint=http://{checkpoints}/{told['name']}",
    ]
    return ";".join(parts)
