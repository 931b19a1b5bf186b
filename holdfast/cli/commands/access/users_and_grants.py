"""`holdfast user`, `holdfast grant`, `holdfast whoami`: who may log in, and what they may do.

A password is asked for twice at a terminal, or read from a file (`-`: standard input); it is never an argument, which
every process of the machine could read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import click

from holdfast.cli.shared.command_frame import CommandFrame, command_frame, run
from holdfast.cli.shared.errors import EXIT_USAGE, CliError
from holdfast.client.admin import AdminClient
from holdfast.client.transport.security.scram import password_keys

KINDS = ("log", "group", "transactional-id", "producer-group", "cluster")

NEW_PASSWORD = click.option(
    "--new-password-file",
    metavar="FILE",
    default=None,
    help="Take the password from the first line (-: of standard input; default: ask at the terminal).",
)
ROLES = click.option(
    "--role",
    "roles",
    multiple=True,
    metavar="ROLE",
    help="Give the user this role; may be repeated; `admin` may do everything.",
)


def with_admin(frame: CommandFrame, call: Callable[[AdminClient], Coroutine[Any, Any, Any]]) -> Any:
    async def ask() -> Any:
        async with frame.admin() as admin:
            return await call(admin)

    return run(ask())


@click.group()
def user() -> None:
    """Look after users that log in by a password: add, keys, password, roles, remove, list."""


@user.command("add")
@click.argument("name")
@ROLES
@NEW_PASSWORD
@command_frame()
def add_user(frame: CommandFrame, name: str, roles: tuple[str, ...], new_password_file: str | None) -> None:
    """Add the user NAME. The first one must be an administrator (--role admin): from then on nobody is let in without a
    credential."""
    password = _new_password(new_password_file)
    with_admin(frame, lambda admin: admin.add_user(name, password, roles=roles))
    frame.output.result({"name": name, "roles": list(roles)})
    if not frame.output.as_json:
        frame.output.say(f"user {name} can log in")


@user.command("keys")
@click.argument("name")
@NEW_PASSWORD
@command_frame(servers=False)
def user_keys(frame: CommandFrame, name: str, new_password_file: str | None) -> None:
    """Print what a cluster keeps of NAME's password, for a file that nodes begin with (security.first_user_file): a
    cluster that has no users yet gets this administrator, and is never open. Asks no cluster."""
    click.echo(json.dumps({"name": name, **password_keys(_new_password(new_password_file))}))


@user.command("password")
@click.argument("name")
@NEW_PASSWORD
@command_frame()
def set_password(frame: CommandFrame, name: str, new_password_file: str | None) -> None:
    """Give the user NAME another password; everybody may give one to themselves."""
    password = _new_password(new_password_file)
    with_admin(frame, lambda admin: admin.set_password(name, password))
    frame.output.result({"name": name})
    if not frame.output.as_json:
        frame.output.say(f"user {name} has another password; connections that are open stay")


@user.command("roles")
@click.argument("name")
@ROLES
@command_frame()
def set_roles(frame: CommandFrame, name: str, roles: tuple[str, ...]) -> None:
    """Let the user NAME have these roles and no others."""
    with_admin(frame, lambda admin: admin.set_roles(name, roles))
    frame.output.result({"name": name, "roles": list(roles)})
    if not frame.output.as_json:
        frame.output.say(f"roles of {name}: {', '.join(roles) or 'none'}")


@user.command("remove")
@click.argument("name")
@command_frame()
def remove_user(frame: CommandFrame, name: str) -> None:
    """Remove the user NAME; its links end."""
    with_admin(frame, lambda admin: admin.remove_user(name))
    frame.output.result({"removed": name})
    if not frame.output.as_json:
        frame.output.say(f"user {name} is gone; grants to that name stay")


@user.command("list")
@command_frame()
def list_users(frame: CommandFrame) -> None:
    """List the users, with their roles."""
    users = with_admin(frame, lambda admin: admin.list_users())
    frame.output.result({"users": users})
    frame.output.table("", ["user", "roles"], ([one["name"], ", ".join(one["roles"])] for one in users))


@click.group()
def grant() -> None:
    """Say what users, roles, certificates and tokens may do: add, remove, list."""


def _grant_command(function: Callable[..., None]) -> Callable[..., None]:
    for decorate in (
        click.option("--deny", is_flag=True, help="Deny it, which wins over whatever allows it."),
        click.argument("resource", metavar="KIND:NAME"),
        click.argument("operation"),
        click.argument("principal"),
    ):
        function = decorate(function)
    return function


@grant.command("add")
@_grant_command
@command_frame()
def add_grant(frame: CommandFrame, principal: str, operation: str, resource: str, deny: bool) -> None:
    """Allow PRINCIPAL (a name, role:NAME, or * for everybody) an OPERATION on log:NAME, group:NAME,
    transactional-id:NAME, producer-group:NAME or cluster; NAME* stands for all names that begin so.

    \b
    log: publish, consume, describe, create, alter, delete
    group: consume, describe, alter, delete      transactional-id: transact, describe
    producer-group: publish                      cluster: cluster, describe
    """
    kind, name, prefix = _resource(resource)
    told = with_admin(frame, lambda admin: admin.add_grant(principal, operation, kind, name, prefix=prefix, deny=deny))
    frame.output.result(told)
    if not frame.output.as_json:
        frame.output.say(f"{principal} {'may not' if deny else 'may'} {operation} {resource}")


@grant.command("remove")
@_grant_command
@command_frame()
def remove_grant(frame: CommandFrame, principal: str, operation: str, resource: str, deny: bool) -> None:
    """Take back what was granted (or denied) with these words."""
    kind, name, prefix = _resource(resource)
    told = with_admin(
        frame, lambda admin: admin.remove_grant(principal, operation, kind, name, prefix=prefix, deny=deny)
    )
    frame.output.result({"removed": told})
    if not frame.output.as_json:
        frame.output.say("removed; links that are no longer allowed end")


@grant.command("list")
@command_frame()
def list_grants(frame: CommandFrame) -> None:
    """List all grants."""
    grants = with_admin(frame, lambda admin: admin.list_grants())
    frame.output.result({"grants": grants})
    rows = ([one["principal"], one["effect"], one["operation"], _shown(one)] for one in grants)
    frame.output.table("", ["principal", "effect", "operation", "resource"], rows)


@click.command()
@command_frame()
def whoami(frame: CommandFrame) -> None:
    """Say as whom the cluster knows you."""
    told = with_admin(frame, lambda admin: admin.whoami())
    frame.output.result(told)
    if frame.output.as_json:
        return
    roles = f", roles {', '.join(told['roles'])}" if told["roles"] else ""
    frame.output.say(f"{told['principal']} (SASL {told['mechanism']}{roles})")
    if told["open_cluster"]:
        frame.output.say("the cluster is open: it knows no users, and whoever reaches it may do everything")


def _resource(text: str) -> tuple[str, str, bool]:
    kind, separator, name = text.partition(":")
    if kind not in KINDS or (kind == "cluster") == bool(separator) or (separator and not name):
        raise CliError(
            f"{text!r} is no resource",
            advice=f"write KIND:NAME or KIND:PREFIX*, of {', '.join(KINDS[:-1])}; or cluster",
            exit_code=EXIT_USAGE,
        )
    return kind, name.removesuffix("*"), name.endswith("*")


def _shown(one: dict[str, Any]) -> str:
    if one["resource"] == "cluster":
        return "cluster"
    return f"{one['resource']}:{one['resource_name']}{'*' if one['prefix'] else ''}"


def _new_password(path: str | None) -> str:
    if path is None:
        if not sys.stdin.isatty():
            raise CliError("there is no terminal to ask for the password at", advice="give --new-password-file")
        return str(click.prompt("new password", hide_input=True, confirmation_prompt=True, err=True))
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{path} cannot be read: {error}", exit_code=EXIT_USAGE) from error
    lines = text.splitlines()
    if not lines or not lines[0]:
        raise CliError(f"{path}: its first line is empty, and no password", exit_code=EXIT_USAGE)
    return lines[0]
