"""The frame of every command: the options they share, and how they fail.

Problem: twenty commands that each invent their options and their error texts are twenty tools.
Rule never broken: a command either does its work and exits 0, or says on standard error what is wrong and what to do,
and exits with the status that `errors.py` promises; a traceback is a bug. With --json the error is a JSON object as
well.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click
import uvloop

from holdfast.cli.shared import errors, settings
from holdfast.cli.shared.errors import CliError
from holdfast.cli.shared.output import Output
from holdfast.client.admin import AdminClient
from holdfast.client.errors import (
    AdminError,
    ConfigurationError,
    HoldfastError,
    NotFoundError,
    TimeoutExpiredError,
    UnreachableError,
)
from holdfast.client.transport.network import NetworkOptions
from holdfast.client.transport.security.credentials import Security
from holdfast.client.transport.zookeeper.bootstrap import SCHEME, find_servers

T = TypeVar("T")

# A person waits at the terminal: where nothing answers at all, the address is wrong or the cluster is down, and says so
# soon. A cluster that is there gets --timeout-s for elections and the like.
FIRST_CONTACT_S = 3.0
SECURITY_OPTIONS = {
    "tls": {"is_flag": True, "default": None, "help": "Connect with TLS (follows from --ca and --cert)."},
    "ca": {"metavar": "FILE", "help": "Trust these authorities, in PEM (default: the system's)."},
    "cert": {"metavar": "FILE", "help": "Show this certificate, in PEM."},
    "key": {"metavar": "FILE", "help": "Read the certificate's key from here (default: from the same file)."},
    "user": {"metavar": "NAME", "help": "Log in as this user."},
    "password_file": {"metavar": "FILE", "help": "Take the user's password from the first line."},
    "token": {"metavar": "TOKEN", "help": "Log in by this token, or by that in a file: @FILE."},
}

OPTION_NAMES = {"key": "cert-key"}
"""Names of options other than those of the fields: `produce` has an option of that name already."""

CLIENT_LOG = logging.getLogger("holdfast.client")
ZOOKEEPER_S = 10.0  # the same for `zk://...`: there every attempt begins with a pause, and servers may be several


@dataclass(frozen=True)
class CommandFrame:
    """Context that a command gets besides its own arguments."""

    output: Output
    servers: list[str]
    timeout_s: float
    zookeeper: settings.ClientZooKeeperSection
    security: Security = field(default_factory=Security)

    def network(self, *, follow_redirects: bool = True) -> NetworkOptions:
        """Options of a command's connections to the cluster."""
        return NetworkOptions(
            follow_redirects=follow_redirects, first_contact_s=FIRST_CONTACT_S, security=self.security
        )

    def admin(self, server: str | None = None) -> AdminClient:
        """Client for administrative requests: to the cluster, or to that node of it."""
        return AdminClient(server or self.servers, timeout_s=self.timeout_s, options=self.network())


class Warnings(logging.Handler):
    """Handler that writes the client's warnings to standard error, where --json leaves room for the error alone."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__(logging.WARNING)
        self._as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        if not self._as_json:
            click.echo(f"{click.style('warning:', fg='yellow')} {record.getMessage()}", err=True)


def command_frame(
    *, servers: bool = True, login: bool | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command `frame: Frame` and the shared options; turn errors into exit statuses. `login`: TLS and
    credentials, without servers to ask; else both together."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def wrapped(
            *args: Any,
            as_json: bool,
            progress: bool | None,
            config: Path | None,
            server: tuple[str, ...] = (),
            timeout_s: float | None = None,
            **options: Any,
        ) -> None:
            given = {name: options.pop(f"_{name}", None) for name in SECURITY_OPTIONS}
            output = Output(as_json=as_json, progress=progress)
            warnings = Warnings(as_json=as_json)
            CLIENT_LOG.addHandler(warnings)
            try:
                loaded = settings.load(config)
                bound_s = timeout_s or loaded.client.timeout_s
                found = _found(settings.servers_from(server, loaded), bound_s, loaded.zookeeper) if servers else []
                security = loaded.security.with_options(given)
                security.check()
                function(CommandFrame(output, found, bound_s, loaded.zookeeper, security), *args, **options)
            except (CliError, HoldfastError) as error:
                sys.exit(report(error, as_json=as_json))
            except KeyboardInterrupt:
                click.echo("interrupted", err=True)
                sys.exit(errors.EXIT_INTERRUPTED)
            except BrokenPipeError:
                # The reader of our output has seen enough (`... | head`). Python would complain again at exit.
                sys.stdout = None
                sys.exit(0)
            finally:
                CLIENT_LOG.removeHandler(warnings)

        decorated: Callable[..., None] = wrapped
        for option in reversed(_shared_options(servers, servers if login is None else login)):
            decorated = option(decorated)
        return decorated

    return decorate


def _found(servers: list[str], timeout_s: float, zookeeper: settings.ClientZooKeeperSection) -> list[str]:
    """Addresses of servers, as they are; `zk://...` is looked up."""
    url = next((server for server in servers if server.startswith(SCHEME)), None)
    if url is None:
        return servers
    # A URL holds commas, at which lists of servers are cut: put it together again.
    return run(find_servers(",".join(servers), timeout_s=min(timeout_s, ZOOKEEPER_S), login=zookeeper.login()))


def _shared_options(servers: bool, login: bool) -> list[Callable[[Callable[..., None]], Callable[..., None]]]:
    options: list[Callable[[Callable[..., None]], Callable[..., None]]] = [
        click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output, for programs."),
        click.option(
            "--progress/--no-progress", default=None, help="Show a progress bar, or none (default: on a terminal)."
        ),
        click.option(
            "--config",
            type=click.Path(path_type=Path, dir_okay=False),
            default=None,
            help="Read this settings file (default: HOLDFAST_CONFIG, ~/.config/holdfast.toml).",
        ),
    ]
    if servers:
        options += [
            click.option(
                "--server",
                "-s",
                multiple=True,
                metavar="SERVER",
                help="Connect to this node, HOST:PORT, or find one by zk://host:port,.../ROOT/CLUSTER, or by the "
                "directory of `cluster up`; may be repeated (default: HOLDFAST_SERVER, settings, the cluster that "
                "runs in var/cluster or var/run, else 127.0.0.1:5672 to 5674).",
            ),
            click.option(
                "--timeout-s",
                type=click.FloatRange(min=0.1),
                default=None,
                help=f"Wait so long at most each time (default: 30; {FIRST_CONTACT_S:g} where no server answers).",
            ),
        ]
    if login:
        options += [
            click.option(f"--{OPTION_NAMES.get(name, name.replace('_', '-'))}", f"_{name}", **how)  # type: ignore
            for name, how in SECURITY_OPTIONS.items()
        ]
    return options


def report(error: CliError | HoldfastError, *, as_json: bool) -> int:
    """Say what went wrong; returns the exit status."""
    status = exit_status(error)
    if as_json:
        document = {
            "error": str(error),
            "advice": error.advice,
            "retriable": getattr(error, "retriable", False),
            "exit_status": status,
        }
        click.echo(json.dumps(document, ensure_ascii=False), err=True)
    else:
        click.echo(f"{click.style('error:', fg='red', bold=True)} {error}", err=True)
        if error.advice:
            click.echo(f"  what to do: {error.advice}", err=True)
    return status


def exit_status(error: CliError | HoldfastError) -> int:
    match error:
        case CliError():
            return error.exit_code
        case ConfigurationError():
            return errors.EXIT_USAGE
        case NotFoundError():
            return errors.EXIT_NOT_FOUND
        case AdminError(code="not-found"):
            return errors.EXIT_NOT_FOUND
        case UnreachableError():
            return errors.EXIT_UNREACHABLE
        case TimeoutExpiredError():
            return errors.EXIT_TIMEOUT
        case _:
            return errors.EXIT_FAILED


def terminate_like_interrupt() -> None:
    """Treat SIGTERM and SIGHUP as Ctrl-C, for commands that own processes: they must not be left behind. Shells start
    what runs in the background deaf to Ctrl-C: that is for the one that is in the foreground."""

    def interrupt(number: int, frame: object) -> None:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGHUP, interrupt)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a command's asynchronous part; Ctrl-C cancels it, and it cleans up before we exit."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)
