"""The parts of the command line that need no cluster: settings, ports, lines, places, output, errors."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from holdfast.cli.app import main
from holdfast.cli.commands.bench import percentiles
from holdfast.cli.commands.consume import parse_start, parse_time_ms
from holdfast.cli.commands.log import _show_log
from holdfast.cli.local_cluster import ports
from holdfast.cli.shared import command_frame, settings
from holdfast.cli.shared.errors import CliError
from holdfast.cli.shared.input_lines import KeyColumn, lines, open_input
from holdfast.cli.shared.output import Output, bytes_text, counted, duration_text, rate_text
from holdfast.client.start_position import Start
from tests.ports import consecutive_ports, free_port


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The settings of whoever runs the tests are none of the tests' business."""
    monkeypatch.delenv("HOLDFAST_SERVER", raising=False)
    monkeypatch.delenv("HOLDFAST_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_pace_is_told_of_what_took_long_enough_to_have_one() -> None:
    assert rate_text(3, 0.02) == ""
    assert rate_text(3, 0.0) == ""
    assert rate_text(2_500, 2.0) == "1,250/s"


# ---------------------------------------------------------------- settings


def a_cluster(directory: Path, *ports: int) -> list[str]:
    """The servers of a cluster whose files, and no more, are there."""
    servers = [f"127.0.0.1:{port}" for port in ports]
    directory.mkdir(parents=True)
    nodes = [{"id": n, "amqp": server, "rpc": "127.0.0.1:1"} for n, server in enumerate(servers, 1)]
    (directory / "cluster.json").write_text(json.dumps({"name": "dev", "durability": "fsync", "nodes": nodes}))
    return servers


def test_the_directory_of_a_cluster_means_all_of_its_nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    servers = a_cluster(tmp_path / "tour", 1, 2, 3)
    for name in ("tour", "./tour", str(tmp_path / "tour")):
        assert settings.servers_from((name,), settings.Settings()) == servers
        monkeypatch.setenv("HOLDFAST_SERVER", name)
        assert settings.servers_from((), settings.Settings()) == servers
        assert settings.servers_from(("option:1",), settings.Settings()) == ["option:1"]
    with pytest.raises(CliError, match="elsewhere/x holds no cluster"):
        settings.servers_from(("elsewhere/x",), settings.Settings())
    (tmp_path / "tour" / "cluster.json").write_text('{"nodes": [{}]}')
    with pytest.raises(CliError, match="cannot be read"):
        settings.servers_from(("tour",), settings.Settings())


def test_without_a_name_the_cluster_that_runs_here_is_meant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    three = ["127.0.0.1:5672", "127.0.0.1:5673", "127.0.0.1:5674"]
    dead, alive, other = free_port(), free_port(), free_port()
    stopped = a_cluster(tmp_path / "var" / "cluster", dead, other)
    assert settings.servers_from((), settings.Settings()) == three
    with socket.create_server(("127.0.0.1", alive)):
        running = a_cluster(tmp_path / "var" / "run", dead, alive)
        assert settings.servers_from((), settings.Settings()) == running
        with socket.create_server(("127.0.0.1", other)):
            with pytest.raises(CliError, match="two clusters run here, in var/cluster and in var/run") as caught:
                settings.servers_from((), settings.Settings())
            assert "--server var/cluster or --server var/run" in caught.value.advice
            assert settings.servers_from(("var/cluster",), settings.Settings()) == stopped


def test_the_nearest_source_of_servers_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "settings.toml"
    file.write_text('[client]\nservers = ["file:1"]\n')
    loaded = settings.load(file)
    assert settings.servers_from((), settings.Settings()) == ["127.0.0.1:5672", "127.0.0.1:5673", "127.0.0.1:5674"]
    assert settings.servers_from((), loaded) == ["file:1"]
    monkeypatch.setenv("HOLDFAST_SERVER", "env:1, env:2")
    assert settings.servers_from((), loaded) == ["env:1", "env:2"]
    assert settings.servers_from(("option:1",), loaded) == ["option:1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[client]\nserver = 1\n", "unknown field `server`"),
        ("[client]\ntimeout_s = -1\n", "timeout_s"),
        ("[client\n", "not valid TOML"),
        ("[zookeeper]\nauth = 'a:b'\n", "unknown field `auth`"),
        ("[client]\nservers = ['zk://x/y']\n[zookeeper]\nauth_file = '/none'\n", "auth_file: /none cannot be read"),
        ("[client]\nservers = ['zk://x/y']\n[zookeeper]\nca_file = '/none'\n", "ca_file: /none is not a file"),
    ],
)
def test_settings_that_are_wrong_stop_the_command(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(text)
    result = CliRunner().invoke(main, ["log", "list", "--config", str(file)])
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize("text", ["", "user\n", "user:\n", ":password\n", "user:a\nuser:b\n"])
def test_a_login_for_zookeeper_is_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "auth"
    file.write_text(text)
    with pytest.raises(CliError, match="must hold one line, user:password"):
        settings.ClientZooKeeperSection(auth_file=str(file)).login()
    file.write_text("user:pass:word\n")
    assert settings.ClientZooKeeperSection(auth_file=str(file)).login().auth == "user:pass:word"


def test_a_settings_file_that_was_named_must_exist(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["log", "list", "--config", str(tmp_path / "none.toml")])
    assert result.exit_code == 2
    assert "cannot be read" in result.output


# ---------------------------------------------------------------- errors


def test_an_unreachable_server_is_told_with_its_own_exit_status() -> None:
    server = f"127.0.0.1:{free_port()}"
    result = CliRunner().invoke(main, ["log", "list", "--server", server, "--timeout-s", "0.2"])
    assert result.exit_code == 4
    assert "cannot be reached" in result.output
    assert "what to do" in result.output


@pytest.mark.parametrize("arguments", [["log", "list"], ["consume", "trades"], ["produce", "trades"]])
def test_nobody_listens_is_told_before_the_timeout(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_frame, "FIRST_CONTACT_S", 0.1)
    started_s = time.monotonic()
    result = CliRunner().invoke(main, [*arguments, "--server", f"127.0.0.1:{free_port()}"])
    assert result.exit_code == 4
    assert "cannot be reached" in result.output
    assert time.monotonic() - started_s < 20, "the timeout is 30 s"


def test_zookeeper_that_is_not_there_is_one_error_without_the_librarys_own(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_frame, "ZOOKEEPER_S", 1.0)
    result = CliRunner().invoke(main, ["log", "list", "--server", f"zk://127.0.0.1:{free_port()}/holdfast/prod"])
    assert result.exit_code == 4
    assert "does not answer" in result.output
    assert "majority of its servers" in result.output
    assert "socket connection error" not in result.output + capfd.readouterr().err


def test_errors_are_json_when_asked_for() -> None:
    server = f"127.0.0.1:{free_port()}"
    result = CliRunner().invoke(main, ["node", "list", "--server", server, "--timeout-s", "0.2", "--json"])
    assert result.exit_code == 4
    assert result.stdout == ""
    told = json.loads(result.stderr)
    assert told["retriable"] is True
    assert told["exit_status"] == 4


@pytest.mark.parametrize(
    "arguments",
    [
        ["log", "list", "--server", "not-a-port:x"],
        ["log", "alter", "trades"],
        ["log", "create", "trades", "--retention", "soon"],
        ["log", "create", "trades", "--compression", "lz4"],
        ["log", "alter", "trades", "--compression", "snappy"],
        ["consume", "trades", "--from", "nowhere"],
        ["consume", "trades", "--from", "offset:00"],
        ["consume", "trades", "--group", "audit", "--epoch", "1"],
        ["consume", "trades", "--partition", "0", "--epoch", "1"],
        ["group", "reset", "trades", "audit", "--to", "0000000000000005"],
        ["produce", "trades", "--key", "a", "--key-column", "b"],
        ["cluster", "up", "--nodes", "32"],
    ],
)
def test_wrong_usage_has_exit_status_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2, result.output


def test_a_log_says_how_it_is_compressed_and_nothing_when_it_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    for description, words in (({"compression": "zstd"}, ", compressed with zstd)"), ({"compression": "none"}, "on)")):
        _show_log(Output(as_json=False), {"name": "trades", "partitions": [], **description})
        assert words in capsys.readouterr().out


@pytest.mark.parametrize("command", [[], ["cluster"], ["log"], ["node"], ["produce"], ["consume"], ["bench"], ["demo"]])
def test_everything_explains_itself(command: list[str]) -> None:
    result = CliRunner().invoke(main, [*command, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output


# ---------------------------------------------------------------- ports


def test_a_port_that_is_taken_is_refused_when_it_was_asked_for() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        with pytest.raises(CliError, match=f"AMQP port {taken} is in use"):
            ports.consecutive(taken, 1, 5672, "AMQP")
        chosen = ports.consecutive(0, 3, taken, "AMQP")
    assert taken not in chosen
    assert chosen == list(range(chosen[0], chosen[0] + 3))
    assert all(20_000 <= port < 32_768 for port in chosen), "outside the range of outgoing connections"


def test_who_chooses_at_the_same_time_chooses_other_ports() -> None:
    """Nothing listens yet at what the first has chosen."""
    choose = "from holdfast.cli.local_cluster import ports; print(ports.consecutive(0, 3, {}, 'AMQP')[0], flush=True)"
    usual = consecutive_ports(3)[0]
    wait = [sys.executable, "-c", f"{choose.format(usual)}; input()"]
    with subprocess.Popen(wait, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        assert int(first.stdout.readline()) == usual
        at_the_same_time = ports.consecutive(0, 3, usual, "AMQP")
        assert not set(at_the_same_time) & {usual, usual + 1, usual + 2}
        first.stdin.close()
        first.wait()
    assert ports.consecutive(0, 3, usual, "AMQP")[0] == usual, "held by a process that has ended"


def test_ports_above_the_last_one_are_refused() -> None:
    with pytest.raises(CliError, match="the last port"):
        ports.consecutive(65535, 3, 5672, "AMQP")


# ---------------------------------------------------------------- lines and keys


async def collect(data: bytes) -> list[bytes]:
    return [line async for batch in lines(io.BufferedReader(io.BytesIO(data)), "test") for line in batch]  # type: ignore[arg-type]


async def test_lines_come_without_their_ends_and_the_last_need_not_have_one() -> None:
    assert await collect(b"") == []
    assert await collect(b"one\ntwo\r\n\nlast") == [b"one", b"two", b"", b"last"]
    big = [b"%d" % number * 100 for number in range(20_000)]
    assert await collect(b"\n".join(big) + b"\n") == big


async def test_a_line_is_handed_on_before_the_next_one_is_there() -> None:
    reading, writing = os.pipe()
    stream = open(reading, "rb")  # noqa: SIM115 ASYNC230  closed below, opens nothing
    found = lines(stream, "pipe")
    os.write(writing, b"now\n")
    assert await asyncio.wait_for(anext(found), 5) == [b"now"]
    os.close(writing)
    assert [batch async for batch in found] == []
    stream.close()


async def test_a_compressed_file_is_read_as_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "lines.csv.gz"
    path.write_bytes(gzip.compress(b"a\nb\n"))
    with open_input(str(path)) as stream:
        assert [batch async for batch in lines(stream, "file")] == [[b"a", b"b"]]
    with pytest.raises(CliError, match="cannot be read"):
        open_input(str(tmp_path / "none.csv"))


def test_keys_come_from_a_column_by_number_or_name() -> None:
    assert KeyColumn("2", ",").key_of(b"a,b,c") == "b"
    named = KeyColumn("symbol", ";")
    named.read_header(b"ms;symbol;price")
    assert named.key_of(b'1;"x;y";2') == "x;y"
    with pytest.raises(CliError, match="no column 'colour'"):
        KeyColumn("colour", ",").read_header(b"ms,symbol")
    with pytest.raises(CliError, match="no column 4"):
        KeyColumn("4", ",").key_of(b"a,b,c")
    with pytest.raises(CliError):
        KeyColumn("0", ",")
    with pytest.raises(CliError):
        KeyColumn("1", "::")


@pytest.mark.parametrize("line", [b'a\r"b",c', b'"a\x00"\r"b'])
def test_a_line_that_is_no_text_is_an_error_for_people(line: bytes) -> None:
    with pytest.raises(CliError, match="cannot be divided into columns"):
        KeyColumn("1", ",").key_of(line)


# ---------------------------------------------------------------- small things


def test_places_to_start_from() -> None:
    assert parse_start("earliest") == Start.earliest()
    assert parse_start("latest") == Start.latest()
    assert parse_start("offset:00000000000000FF") == Start.after("00000000000000ff")
    assert parse_start("offset:5") == Start.after("0000000000000005")
    assert parse_start("time:1000") == Start.from_time(1000)
    assert parse_time_ms("1970-01-01T00:00:01Z") == 1000
    assert parse_time_ms("1970-01-01T01:00:01+01:00") == 1000
    for wrong in ("", "zzz", "00ff", "-1", "0x05", "00000000000000fg", "5 ", "\u0665"):
        with pytest.raises(CliError, match="16 hexadecimal digits"):
            parse_start(f"offset:{wrong}")
    with pytest.raises(CliError) as refused:
        parse_start("offset:10")
    assert "if 10 is a decimal number, offset:000000000000000a" in refused.value.advice
    with pytest.raises(CliError, match="not a time"):
        parse_start("time:yesterday")


def test_quantities_for_people() -> None:
    assert [bytes_text(n) for n in (0, 1023, 1536, 5 << 30)] == ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
    assert [counted(n, "event") for n in (0, 1, 1234)] == ["0 events", "1 event", "1,234 events"]
    assert [duration_text(n) for n in (None, 7 * 86_400_000, 90_000, 1500)] == ["for ever", "7 d", "90 s", "1500 ms"]


def test_percentiles_are_values_that_occurred() -> None:
    assert percentiles([]) == {"p50": 0.0, "p95": 0.0, "p99": 0.0, "max": 0.0}
    assert percentiles([3.0]) == {"p50": 3.0, "p95": 3.0, "p99": 3.0, "max": 3.0}
    assert percentiles([float(n) for n in range(100)]) == {"p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 99.0}


def test_the_version_is_told() -> None:
    assert re.search(r"\d+\.\d+", CliRunner().invoke(main, ["--version"]).output)


@pytest.mark.parametrize("show", [Output.result, Output.line])
def test_a_document_is_written_whole_though_the_system_takes_it_in_parts(
    monkeypatch: pytest.MonkeyPatch, show: Callable[[Output, object], None]
) -> None:
    """As where Python has no buffer, and a signal comes in the midst of it."""
    taken = bytearray()

    class Pipe(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            taken.extend(bytes(data[:5]))
            return min(5, len(data))

    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(cast(Any, Pipe()), write_through=True))
    given = {"partitions": list(range(100)), "name": "später"}
    show(Output(as_json=True), given)
    assert json.loads(taken) == given
    assert taken.endswith(b"}\n")
