"""The commands against real nodes: a cluster's life, and the main job in small."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.commands.demo import DEFAULT_FILE
from holdfast.cli.local_cluster.processes import LocalCluster
from holdfast.client.errors import TransactionRolledBackError
from holdfast.client.sync import ProducerClient, TransactionGroup
from tests.ports import cluster_ports

pytestmark = pytest.mark.cluster


def holdfast(*arguments: str, status: int = 0, text: bytes = b"") -> bytes:
    """Run a command as a user does; returns its standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", *arguments], input=text, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == status, f"{arguments}: {done.returncode}\n{done.stdout.decode()}\n{done.stderr.decode()}"
    return done.stdout


def read_all(log: str, at: tuple[str, ...]) -> tuple[str, str]:
    """What `consume --show all` says on standard output and on standard error."""
    command = ["consume", log, "--from", "earliest", "--until-end", "--show", "all", *at]
    done = subprocess.run([sys.executable, "-m", "holdfast.cli", *command], capture_output=True, text=True, timeout=120)
    return done.stdout, done.stderr


def asked(*arguments: str, status: int = 0) -> Any:
    return json.loads(holdfast(*arguments, "--json", status=status))


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A place for a cluster, which is stopped whatever happens."""
    path = tmp_path / "cluster"
    yield path
    if LocalCluster.exists(path):
        LocalCluster.load(path).stop()


def test_the_life_of_a_cluster(directory: Path) -> None:
    at = ("--dir", str(directory))
    up = asked("cluster", "up", *at, *cluster_ports(3), "--monitoring", "--detach")
    for node in up["nodes"]:
        with urllib.request.urlopen(f"http://{node['monitoring']}/metrics", timeout=60) as answer:
            assert b"holdfast_ready" in answer.read()
    servers = [node["amqp"] for node in up["nodes"]]
    assert len(servers) == 3
    first, second, _third = (("--server", server) for server in servers)

    heading = holdfast("node", "list", *first).decode()
    for column in ("listeners for clients", "replicas catching up", "replicas without a vote", "its data are refused"):
        assert column in heading

    asked("log", "create", "greetings", "--partitions", "4", "--replicas", "3", *first)
    described = asked("log", "describe", "greetings", *second)
    assert described["name"] == "greetings"
    assert [entry["partition"] for entry in described["partitions"]] == ["0", "1", "2", "3"]
    assert all(sorted(entry["replicas"]) == [1, 2, 3] for entry in described["partitions"])
    holdfast("log", "create", "greetings", *first, status=1)
    holdfast("log", "describe", "nothing", *first, status=3)

    text = b"".join(b"%d,key-%d\n" % (number, number % 7) for number in range(5000))
    holdfast("produce", "greetings", "--key-column", "2", *first, text=text)
    victim = 1
    assert victim in {entry["leader"] for entry in described["partitions"]}
    assert asked("cluster", "kill-node", str(victim), *at)["outcome"] == "killed"
    holdfast("cluster", "kill-node", str(victim), *at, status=3)
    holdfast("cluster", "status", *at, status=1)
    alive = ("--server", str(directory))  # all of its nodes, not only the first
    read = holdfast("consume", "greetings", "--from", "earliest", "--until-end", *alive)
    assert sorted(read.splitlines()) == sorted(text.splitlines())

    asked("cluster", "start-node", str(victim), *at)
    status = asked("cluster", "status", *at)
    assert [node["answers"] for node in status["nodes"]] == [True] * 3
    through = servers[victim - 1]
    last = holdfast("consume", "greetings", "--from", "earliest", "--max", "3", "--json", "--server", through)
    assert [set(json.loads(line)) for line in last.splitlines()] == [
        {"partition", "offset", "timestamp_ms", "key", "body"}
    ] * 3
    holdfast("log", "delete", "greetings", "--yes", *first)

    stopped = asked("cluster", "down", *at)
    assert [node["outcome"] for node in stopped["nodes"]] == ["stopped"] * 3
    assert not LocalCluster.load(directory).running()
    holdfast("cluster", "up", *at, "--nodes", "5", "--detach", status=1)


def idempotent_publishing(at: tuple[str, str]) -> None:
    """A producer that goes on from its saved state, and one that takes the partition over."""
    asked("log", "create", "numbered", "--partitions", "2", *at)
    publish = ("produce", "numbered", "--idempotent", "--partition", "1", *at, "--json")
    first = json.loads(holdfast(*publish, "--owner-level", "0", text=b"1\n2\n3\n"))
    assert (first["events"], first["owner_level"], first["last_sequence_number"]) == (3, 0, 3)
    group = str(first["producer_group_id"])
    saved = ("--producer-group", group, "--owner-level", "0", "--starting-sequence", "1")
    again = json.loads(holdfast(*publish, *saved, text=b"2\n3\n4\n"))  # of these two are there already
    assert again["last_sequence_number"] == 4
    holdfast(*publish, *saved, text=b"2\nother\n", status=1)  # a number for another event
    taken = json.loads(holdfast(*publish, "--producer-group", group, "--owner-level", "1", text=b"5\n"))
    assert (taken["owner_level"], taken["last_sequence_number"]) == (1, 1)
    holdfast(*publish, "--producer-group", group, "--owner-level", "0", text=b"too late\n", status=1)
    text = holdfast("consume", "numbered", "--from", "earliest", "--until-end", *at)
    assert text == b"1\n2\n3\n4\n5\n"
    (listed,) = asked("producer", "list", "numbered", *at)["producers"]
    assert (listed["partition"], listed["producer_id"], listed["epoch"]) == ("1", int(group), 1)
    assert listed["last_sequence"] == 1
    assert asked("producer", "list", "numbered", "--partition", "0", *at)["producers"] == []
    assert asked("producer", "describe", "numbered", "1", group, *at)["last_sequence"] == 1
    holdfast("producer", "describe", "numbered", "0", group, *at, status=3)
    holdfast("producer", "list", "nothing", *at, status=3)
    for table in (("list", "numbered"), ("describe", "numbered", "1", group)):
        assert group.encode() in holdfast("producer", *table, *at)


def transactions(at: tuple[str, str]) -> None:
    """Lines in transactions, what an operator sees of them, and what readers see of what is open."""
    asked("log", "create", "ledger", "--partitions", "2", *at)
    lines = b"".join(b"%d\n" % number for number in range(25))
    holdfast("produce", "ledger", "--transaction-size", "10", *at, status=2)
    done = json.loads(
        holdfast(
            "produce", "ledger", "--transactional-id", "tail", "--transaction-size", "10", "--json", *at, text=lines
        )
    )
    assert (done["events"], done["transactions"], done["redone"]) == (25, 3, 0)
    (listed,) = asked("txn", "list", *at)["transactions"]
    assert listed["transactional_id"] == "tail"
    assert listed["open_ms"] is None
    assert asked("txn", "list", "--open", *at) == {"transactions": []}
    assert b"tail" in holdfast("txn", "list", *at)
    assert asked("txn", "describe", "tail", *at)["last"].endswith("was committed")
    assert b"was committed" in (described := holdfast("txn", "describe", "tail", *at))
    assert b"decided by coordinator" in described
    holdfast("txn", "describe", "nobody", *at, status=3)
    holdfast("txn", "abort", "tail", *at, status=1)
    assert asked("txn", "hanging", *at) == {"transactions": []}
    assert b"no transaction hangs" in holdfast("txn", "hanging", *at)
    with ProducerClient(at[1], "ledger", transactional_id="open") as producer:
        transaction = producer.transaction()
        transaction.begin()
        transaction.send(b"undecided", partition="0").result(60)
        read = ("consume", "ledger", "--from", "earliest", "--until-end", *at)
        assert sorted(holdfast(*read).splitlines()) == sorted(lines.splitlines())
        assert b"undecided" in holdfast(*read, "--isolation", "uncommitted")
        while not asked("txn", "list", "--open", *at)["transactions"]:  # its coordinator is told within a second
            pass
        aborted = asked("txn", "abort", "open", *at)
        assert aborted["last"].endswith("by an operator")
        with pytest.raises(TransactionRolledBackError):
            transaction.commit()
        _groups(at, producer)


def _groups(at: tuple[str, ...], producer: ProducerClient) -> None:
    with TransactionGroup(at[1], writer="orders", batch=7, run="r1") as group:
        holdfast("txn", "groups", "describe", "orders", *at, status=3)
        group.open()
        with group.member(producer, part="3") as member:
            member.send(b"undecided", partition="1")
            winner = member.prepare()
        (listed,) = asked("txn", "groups", "list", "--open", *at)["writers"]
        assert (listed["writer"], listed["batch"], listed["prepared"]) == ("orders", 7, 1)
        assert b"orders" in holdfast("txn", "groups", "list", *at)
        shown = holdfast("txn", "groups", "describe", "orders", *at)
        assert winner.encode() in shown
        assert b"ledger/1" in shown
        assert b"was rolled back" in holdfast("txn", "groups", "abort", "orders", *at)
        holdfast("txn", "groups", "abort", "orders", *at, status=1)
        assert asked("txn", "groups", "list", "--open", *at) == {"writers": []}
        assert asked("txn", "groups", "describe", "orders", *at)["aborted"] == "batch 7 was aborted by an operator"


@pytest.mark.parametrize(
    "wrong",
    [
        ("--idempotent", "--producer-group", "1"),
        ("--idempotent", "--producer-group", "1", "--partition", "0", "--key", "IBM"),
        ("--idempotent", "--producer-group", "1", "--partition", "0", "--key-column", "1"),
        ("--no-idempotent", "--partition", "0", "--owner-level", "1"),
        ("--idempotent", "--partition", "0", "--owner-level", "32768"),
        ("--idempotent", "--partition", "0", "--starting-sequence", str(2**31)),
        ("--idempotent", "--partition", "0", "--producer-group", "-1"),
    ],
)
def test_wrong_use_of_idempotence_is_refused_before_any_server_is_asked(wrong: tuple[str, ...]) -> None:
    holdfast("produce", "numbered", "--server", "127.0.0.1:1", *wrong, status=2)


def test_the_main_job_in_small(directory: Path, tmp_path: Path) -> None:
    small = tmp_path / "trades.csv.gz"
    with gzip.open(DEFAULT_FILE, "rb") as whole:
        small.write_bytes(gzip.compress(b"".join(islice(whole, 60_001))))
    summary = asked("demo", "--dir", str(directory), *cluster_ports(3), "--file", str(small), "--once")
    assert summary["ok"] is True
    assert summary["problems"] == []
    assert summary["publish"]["confirmed"] == summary["read_back"]["distinct"] == 60_000
    assert summary["publish"]["through_node"] != summary["read_back"]["through_node"]
    assert summary["failover"]["gap_ms"] > 0
    assert summary["failover"]["restarted_after_s"] > 0
    assert not LocalCluster.load(directory).running()


def test_a_cluster_in_the_foreground_stops_with_its_command(directory: Path) -> None:
    command = [sys.executable, "-m", "holdfast.cli", "cluster", "up", "--dir", str(directory), "--nodes", "1"]
    command += cluster_ports(1)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as up:
        assert up.stdout is not None
        for line in up.stdout:
            if b"until Ctrl-C" in line:
                break
        try:
            assert list(LocalCluster.load(directory).running()) == [1]
            at = ("--server", LocalCluster.load(directory).plan.servers[0])
            holdfast("log", "create", "alone", *at)
            holdfast("produce", "alone", *at, text=b"one\ntwo\n")
            assert holdfast("consume", "alone", "--from", "earliest", "--until-end", *at) == b"one\ntwo\n"
            events, notes = read_all("alone", at)
            assert [line.split("\t")[-1] for line in events.splitlines()] == ["one", "two"]
            assert notes.splitlines()[0].split() == ["part.", "offset", "taken", "in", "at", "key", "body"]
            idempotent_publishing(at)
            transactions(at)
        finally:
            os.kill(up.pid, signal.SIGTERM)
        assert up.stdout.read().count(b": stopped") == 1
        assert up.wait(30) == 0
    assert not LocalCluster.load(directory).running()
