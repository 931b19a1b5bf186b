"""Command `python -m benchmarks.client.security`: measures the cost of TLS and a login, as ratios to plain connections.

Encryption costs by the byte and a login by the connection. Both costs are smaller than the noise between two runs. So
each round publishes by plain connections, by TLS, and by TLS with SCRAM, in changing order. It reads the events back,
and opens connections for a while. Each round gives one ratio, and their median counts.

A cluster with users accepts no client without a credential. So two clusters are up during the whole run, one open
(plain, and TLS), one closed (TLS with SCRAM). Neither has TLS between its nodes. This program makes a self-signed
certificate for the run.
"""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from rich.console import Console
from rich.table import Table

from benchmarks.client.load import LoadRow, LoadTarget, run
from benchmarks.peers.base import LOOPBACK, end_on_signals, free_ports, running
from benchmarks.peers.holdfast import NODES, Holdfast
from benchmarks.places import scratch
from holdfast.client import AdminClient, NetworkOptions, RangeClient, Security

PUBLISHING = LoadRow("batches, 1 partition", 1, 500)
SIZES = (100, 1024)
AT_ONCE = 4  # tasks that open connections
USER, PASSWORD = "bench", "of the benchmark"
PLAIN, TLS, SCRAM = "plain", "TLS", "TLS + SCRAM"


@dataclass(frozen=True)
class LoginWay:
    """One way to connect to a cluster."""

    name: str
    peer: Holdfast
    servers: list[str]
    network: NetworkOptions


@dataclass(frozen=True)
class SecurityRound:
    """Figures of one round with one way and one size."""

    way: str
    size: int
    published_per_s: float
    publishing_us: float  # of CPU for an event, client and nodes
    read_per_s: float


def certificate(directory: Path) -> tuple[str, str]:
    """Make a certificate for loopback; return the files of the certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "benchmark")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(LOOPBACK))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = directory / "cert.pem", directory / "cert.key"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    key_file.touch(mode=0o600)
    key_file.write_bytes(key.private_bytes(*private))
    return str(cert_file), str(key_file)


def with_tls(peer: Holdfast, cert_file: str, key_file: str) -> list[str]:
    """Add listeners with TLS to the nodes; return their addresses."""
    addresses = [f"{LOOPBACK}:{port}" for port in free_ports(NODES)]
    files = f"cert_file = {json.dumps(cert_file)}\nkey_file = {json.dumps(key_file)}\n"
    peer.restart(lambda number: f'\n[[listener]]\nname = "tls"\nbind = "{addresses[number - 1]}"\ntls = "on"\n{files}')
    return addresses


def closed(directory: Path, durability: str) -> tuple[Holdfast, Path]:
    """Make the cluster that will be closed; return it with the file of the password."""
    password_file = directory / "password"
    password_file.touch(mode=0o600)
    password_file.write_text(PASSWORD + "\n")
    return Holdfast(durability, directory), password_file


def ways(life: ExitStack, directory: Path, durability: str) -> list[LoginWay]:
    files = certificate(directory)
    opened = Holdfast(durability, directory)
    shut, password_file = closed(directory, durability)
    life.enter_context(running(opened))
    life.enter_context(running(shut))
    open_tls, shut_tls = with_tls(opened, *files), with_tls(shut, *files)
    uvloop.run(_close(shut, password_file))
    login = Security(ca=files[0], user=USER, password=PASSWORD)
    return [
        LoginWay(PLAIN, opened, opened.addresses, NetworkOptions()),
        LoginWay(TLS, opened, open_tls, NetworkOptions(security=Security(ca=files[0]))),
        LoginWay(SCRAM, shut, shut_tls, NetworkOptions(security=login)),
    ]


async def _close(peer: Holdfast, password_file: Path) -> None:
    async with AdminClient(peer.addresses) as admin:
        await admin.add_user(USER, PASSWORD, roles=["admin"])
    peer.log_in(USER, password_file)


def measured(way: LoginWay, size: int, warmup_s: float, seconds: float) -> SecurityRound:
    log, leaders = way.peer.create_log(1)
    place = LoadTarget(way.servers, log, way.peer.processes(), leaders["0"], way.network)
    found = run(PUBLISHING, place, idempotent=False, size=size, warmup_s=warmup_s, seconds=seconds)
    read = uvloop.run(_read(way, log))
    way.peer.delete_log(log)
    return SecurityRound(way.name, size, found.events_per_s, found.client_us + found.nodes_us, read)


async def _read(way: LoginWay, log: str) -> float:
    """Read the log from its first event to its last; return events a second."""
    seen = 0
    async with RangeClient(way.servers, network=way.network) as client:
        extents = await client.extents(log)
        began_s = time.perf_counter()
        for extent in extents:
            async for block in client.read(log, extent.partition, extent.start, extent.end):
                seen += len(block)
        return seen / (time.perf_counter() - began_s)


async def logins(way: LoginWay, seconds: float) -> float:
    """Open connections, ask for their identity, and close them; return connections a second."""
    began_s, opened = time.perf_counter(), 0
    over_s = began_s + seconds

    async def one_after_another() -> None:
        nonlocal opened
        while time.perf_counter() < over_s:
            async with AdminClient(way.servers[:1], options=way.network) as admin:
                await admin.whoami()
            opened += 1

    await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))
    return opened / (time.perf_counter() - began_s)


def table(rounds: list[SecurityRound], connected: dict[str, list[float]], sizes: tuple[int, ...]) -> Table:
    shown = Table("", PLAIN, TLS, SCRAM, "TLS / plain", "TLS + SCRAM / plain", title="medians", title_justify="left")

    def add(what: str, by_way: dict[str, list[float]], form: str) -> None:
        medians = {way: statistics.median(values) for way, values in by_way.items()}
        ratios = (
            statistics.median(one / plain for one, plain in zip(by_way[way], by_way[PLAIN], strict=True))
            for way in (TLS, SCRAM)
        )
        shown.add_row(what, *(format(medians[way], form) for way in (PLAIN, TLS, SCRAM)), *(f"{r:.2f}" for r in ratios))

    def values(size: int, value: Callable[[SecurityRound], float]) -> dict[str, list[float]]:
        return {
            way: [value(one) for one in rounds if (one.way, one.size) == (way, size)] for way in (PLAIN, TLS, SCRAM)
        }

    for size in sizes:
        add(f"published/s, {size} B", values(size, lambda one: one.published_per_s), ",.0f")
        add(f"us of CPU for a published event, {size} B", values(size, lambda one: one.publishing_us), ".1f")
        add(f"read/s, {size} B", values(size, lambda one: one.read_per_s), ",.0f")
    add(f"connections opened/s, {AT_ONCE} at once", connected, ",.0f")
    return shown


@click.command()
@click.option(
    "--rounds",
    default=5,
    show_default=True,
    type=click.IntRange(1),
    help="Run so many rounds of all ways, for each size.",
)
@click.option("--seconds", default=3.0, show_default=True, help="Measured seconds of publishing and of connecting.")
@click.option(
    "--warmup", "warmup_s", default=1.0, show_default=True, help="Seconds before publishing that are not measured."
)
@click.option("--durability", type=click.Choice(["fsync", "replicated"]), default="replicated", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print all rounds as JSON, for programs.")
def main(rounds: int, seconds: float, warmup_s: float, durability: str, as_json: bool) -> None:
    """Measure the cost of TLS and a login in publishing, reading and connecting, as ratios to plain connections."""
    end_on_signals()
    console = Console(width=None if sys.stdout.isatty() else 160)
    found: list[SecurityRound] = []
    connected: dict[str, list[float]] = {PLAIN: [], TLS: [], SCRAM: []}
    load = os.getloadavg()[0]
    with scratch() as directory, ExitStack() as life:
        all_ways = ways(life, directory, durability)
        for number in range(rounds):
            for way in (*all_ways[number % 3 :], *all_ways[: number % 3]):
                with console.status(f"round {number + 1}: {way.name}"):
                    found += [measured(way, size, warmup_s, seconds) for size in SIZES]
                    connected[way.name].append(uvloop.run(logins(way, seconds)))
    if as_json:
        told = {"load_before": load, "rounds": [asdict(one) for one in found], "connections": connected}
        click.echo(json.dumps(told))
        return
    console.print(table(found, connected, SIZES))
    told_load = f"load of the machine before: {load:.1f}"
    console.print(f"{rounds} rounds of {seconds:g} s, {durability}; {told_load}", highlight=False)


if __name__ == "__main__":
    main()
