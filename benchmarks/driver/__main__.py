"""Command line of the driver: one run, one JSON object on stdout. Exit status 1 if the peer refused or hung up."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import click

from benchmarks.driver.link import LinkOptions
from benchmarks.driver.load import Load, LoadPlan
from benchmarks.driver.wire import PeerError, Url

PARTITION_PROPERTY = "event-streams-partition"


class UrlType(click.ParamType):
    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Url:
        try:
            return Url.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


COMMON = (
    click.option("--url", "urls", type=UrlType(), multiple=True, required=True,
                 help="amqp://[user:password@]host:port/address; several are used round robin"),
    click.option("--connections", default=1, show_default=True, help="links, each on its own connection"),
    click.option("--size", default=1024, show_default=True, help="bytes in the body of an event"),
    click.option("--count", type=int, help="stop after so many events per link"),
    click.option("--seconds", type=float, help="stop after so many seconds past the warm-up"),
    click.option("--warmup", default=1.0, show_default=True, help="seconds not measured (with --seconds)"),
    click.option("--drain", default=20.0, show_default=True, help="seconds to wait for what is in flight"),
    click.option("--follow-redirects", is_flag=True, help="announce amqp:link:redirect and follow it"),
    click.option("--partition", help="bind the links to this partition (event stream extensions)"),
)  # fmt: skip
SENDING = (
    click.option("--window", default=1000, show_default=True, help="events in flight per sender"),
    click.option("--durable", is_flag=True, help="events say in a header that they are durable"),
)
RECEIVING = (
    click.option("--credit", default=2000, show_default=True, help="credit kept granted per receiver"),
    click.option("--settled", is_flag=True, help="ask for pre-settled deliveries"),
    click.option("--start", default="latest", show_default=True, help="earliest, latest or an offset"),
    click.option("--filter", "filter_kind", type=click.Choice(["none", "event-streams", "rabbitmq-stream"]),
                 default="none", show_default=True, help="how the peer wants the start to be said"),
)  # fmt: skip


def options(*groups: tuple[Callable[[Any], Any], ...]) -> Callable[[Any], Any]:
    def decorate(command: Any) -> Any:
        for group in reversed(groups):
            for option in reversed(group):
                command = option(command)
        return command

    return decorate


def _plan(role: str, given: dict[str, Any]) -> LoadPlan:
    if given["count"] is None and given["seconds"] is None:
        raise click.UsageError("a run needs a bound: --count or --seconds")
    properties = {PARTITION_PROPERTY: given["partition"]} if given["partition"] is not None else {}
    links = {"follow_redirects": given["follow_redirects"], "properties": properties}
    receiving = role != "send"
    sending = role != "receive"
    urls = tuple(given["urls"])
    return LoadPlan(
        senders=given["connections"] if sending else 0,
        receivers=(1 if sending else given["connections"]) if receiving else 0,
        send_urls=urls,
        receive_urls=urls,
        size=given["size"],
        window=given.get("window", 1000),
        credit=given.get("credit", 2000),
        count=given["count"],
        seconds=given["seconds"],
        warmup_s=given["warmup"],
        drain_s=given["drain"],
        send_options=LinkOptions(**links, durable=given.get("durable", False)),
        receive_options=LinkOptions(
            **links, settled=given.get("settled", False), filter_kind=given.get("filter_kind", "none"),
            start=given.get("start", "latest"),
        ),
        receive_latency=sending,
    )  # fmt: skip


def _run(role: str, given: dict[str, Any]) -> None:
    try:
        report = Load(_plan(role, given)).run()
    except (PeerError, OSError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    click.echo(json.dumps(report))


@click.group()
def main() -> None:
    """Drive an AMQP 1.0 peer and measure it."""


@main.command()
@options(COMMON, SENDING)
def send(**given: Any) -> None:
    """Send and count what the peer accepts."""
    _run("send", given)


@main.command()
@options(COMMON, RECEIVING)
def receive(**given: Any) -> None:
    """Receive, from the tail or from the start."""
    _run("receive", given)


@main.command()
@options(COMMON, SENDING, RECEIVING)
def both(**given: Any) -> None:
    """Receive with one link what the senders send at the same time."""
    _run("both", given)


if __name__ == "__main__":
    main()
