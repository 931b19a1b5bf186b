"""NATS as a contestant: what is missing is said; real clusters come up, serve, and leave nothing behind."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Literal

import psutil
import pytest

from benchmarks.driver.bounded import LoadPlan
from benchmarks.driver.wire import PeerError, Url
from benchmarks.matrix.cell import measure
from benchmarks.matrix.contestants import NATS, NATS_BENCH, NATS_SYNC
from benchmarks.matrix.rows import CONTESTANTS, Row
from benchmarks.nats.bench_program import NatsBenchLoad
from benchmarks.peers import nats
from benchmarks.peers.base import PeerUnavailable, free_ports, running

needs_client = pytest.mark.skipif(
    importlib.util.find_spec("nats") is None, reason="nats-py is not installed (benchmarks/nats/requirements.lock)"
)
needs_nats = pytest.mark.skipif(nats.missing() is not None, reason=str(nats.missing()))


def test_missing_servers_are_said_with_what_builds_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(PeerUnavailable, match=r"rows are left out.*scripts/nats\.sh"):
        nats.Nats("always")


def test_the_script_prints_where_the_programs_are_looked_for_or_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "dirname").symlink_to(str(shutil.which("dirname")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tools))

    def build(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["/bin/sh", str(nats.SCRIPT), *words], capture_output=True, text=True, check=False)

    for words, status in (((), 1), (("--optional",), 0)):
        lacking = build(*words)
        assert (lacking.returncode, lacking.stdout) == (status, "")
        assert "there is no Go here" in lacking.stderr
    assert nats.programs() is None
    version = nats.SCRIPT.read_text().partition("\nserver=")[2].split()[0]
    home = tmp_path / "holdfast" / f"nats-{version}"
    home.mkdir(parents=True)
    for name in ("nats-server", "nats"):
        (home / name).touch(mode=0o755)
    assert build().stdout.strip() == str(home) == str(nats.programs())


def test_the_fairest_rival_promises_the_same() -> None:
    ours = [one for one in CONTESTANTS if one.peer.startswith("nats")]
    assert {NATS, NATS_SYNC} < {*ours}
    for one in ours:
        same = "holdfast-fsync" if one.peer == "nats-always" else "holdfast-replicated"
        assert (one.rivals[0].peer, one.rivals[0].kind) == (same, "own-client"), one.title


@needs_client
def test_a_missing_server_is_an_error_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.nats.load import NatsLoad

    nobody = (Url("127.0.0.1", free_ports(1)[0], "stream"),)
    with pytest.raises(PeerError):
        NatsLoad(LoadPlan(senders=1, send_urls=nobody, count=1)).run()


def test_a_failure_of_the_benchmark_program_is_said_with_its_words(tmp_path: Path) -> None:
    program = tmp_path / "nats"
    program.write_text("#!/bin/sh\necho 'no responders' >&2\nexit 3\n")
    program.chmod(0o755)
    plan = LoadPlan(senders=1, send_urls=(Url("127.0.0.1", 1, "stream"),), count=1)
    with pytest.raises(PeerError, match="status 3: no responders"):
        NatsBenchLoad(plan, program).run()


@needs_nats
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("sync", ["always", "default"])
def test_three_servers_serve_and_leave_nothing_behind(sync: Literal["always", "default"], tmp_path: Path) -> None:
    from benchmarks.nats.load import NatsLoad

    with running(nats.Nats(sync, tmp_path)) as peer:
        assert isinstance(peer, nats.Nats)
        processes = peer.processes()
        assert len(processes) == 3
        sockets = [socket for process in processes.values() for socket in process.net_connections("tcp")]
        assert {socket.laddr.ip for socket in sockets if socket.status == "LISTEN"} == {"127.0.0.1"}
        assert ("sync_interval: always" in peer.configuration(1)) == (sync == "always")
        target = peer.create("stream")
        assert target.leader in processes
        plan = LoadPlan(
            senders=1, receivers=1, send_urls=(target.send_url,), receive_urls=(target.receive_url,), count=1000,
            size=100, window=100, send_options=target.send_options, receive_options=target.tail_options,
        )  # fmt: skip
        report = NatsLoad(plan).run()
        sent, received = report["send"], report["receive"]
        assert (sent["events"], sent["unsettled"], sent["outcomes"]) == (1000, 0, {})
        seen = (received["events"], received["gaps"], received["repeats"], received["foreign"])
        assert seen == (1000, 0, 0, 0)
        peer.delete(target)
        for row in (
            Row("r", "a row", (NATS_BENCH,), size=100, window=100, count=500),
            Row("b", "a backlog", (NATS,), mode="backlog", size=100, count=2000),
        ):
            (one,) = row.contestants
            cell = measure(row, one, {one.peer: peer}, 1.0)
            assert cell.problems == ()
            assert cell.events_per_s > 0
    assert not any(tmp_path.iterdir())
    assert not any(psutil.pid_exists(process.pid) for process in processes.values())
