"""Runs the suite against a broker: `python -m tests.conformance --url amqp://host:port[/address]`."""

from __future__ import annotations

import sys

import click
from rich.console import Console
from rich.progress import track

from tests.conformance import report
from tests.conformance.broker import BrokerUnderTest
from tests.conformance.rules import READINGS, RULES
from tests.conformance.suite import FAIL, judge


@click.command()
@click.option("--url", required=True, help="amqp://[user:password@]host:port[/address of a log with partitions]")
@click.option("--rule", "names", multiple=True, help="Only this rule; may be given several times.")
@click.option("--readings", is_flag=True, help="Also Holdfast's readings of what the text leaves open (D1 to D12).")
@click.option("--markdown", is_flag=True, help="Print the page docs/reference/conformance.md instead of a table.")
@click.option("--timeout", "timeout_s", default=10.0, show_default=True, help="Seconds to wait for what must come.")
def main(url: str, names: tuple[str, ...], readings: bool, markdown: bool, timeout_s: float) -> None:
    """Judge a broker by the rules of the Event Stream Extensions. Exit status 0 only if none fails.

    Without an address in the url the suite makes a log of its own through $management, and deletes it in the end.
    """
    wanted = list(names) or [*RULES, *(READINGS if readings else ())]
    unknown = [name for name in wanted if name not in RULES and name not in READINGS]
    if unknown:
        raise click.UsageError(f"no such rule: {', '.join(unknown)}")
    broker = BrokerUnderTest(url, timeout_s=timeout_s)
    try:
        broker.prepare()
    except LookupError as error:
        raise click.UsageError(f"{error}; name a log in the url: amqp://host:port/address") from None
    try:
        console = Console(stderr=True)
        results = [judge(name, broker) for name in track(wanted, "judging", console=console, transient=True)]
    finally:
        broker.close()
    if markdown:
        click.echo(report.markdown(results), nl=False)
    else:
        report.show(results, Console(width=None if sys.stdout.isatty() else 160))
        click.echo(report.totals(results))
    sys.exit(any(result.outcome == FAIL for result in results))


if __name__ == "__main__":
    main()
