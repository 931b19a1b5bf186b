"""Artemis as a contestant: what is missing is said; a real pair comes up, stores, serves, and leaves nothing behind."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest

from benchmarks.driver.bounded import LoadPlan
from benchmarks.driver.link import LinkOptions
from benchmarks.driver.load import Load
from benchmarks.matrix.cell import measure
from benchmarks.matrix.contestants import ARTEMIS, ARTEMIS_FSYNC, FSYNC, REPLICATED
from benchmarks.matrix.rows import CONTESTANTS, Row
from benchmarks.peers import artemis
from benchmarks.peers.base import PeerFailed, PeerUnavailable, running, wait_until

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "artemis.sh"
CORE = "{urn:activemq:core}"

needs_artemis = pytest.mark.skipif(artemis.missing() is not None, reason=str(artemis.missing()))


def test_missing_brokers_are_said_with_what_fetches_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(PeerUnavailable, match=r"rows are left out.*scripts/artemis\.sh"):
        artemis.Artemis()


def test_a_missing_java_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerUnavailable, match=r"a Java of 17 or newer"):
        artemis.Artemis()


def test_the_version_is_the_one_that_is_fetched() -> None:
    assert artemis.BROKERS.version in artemis.BROKERS.jars.name
    assert artemis.BROKERS.version in artemis.BROKERS.pom.read_text()
    assert artemis.BROKERS.version.startswith("2.")


def test_the_script_prints_where_the_brokers_are_looked_for_or_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sed", "dirname"):
        (tools / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tools))

    def fetch(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["/bin/sh", str(SCRIPT), *words], capture_output=True, text=True, check=False)

    for words, status in (((), 1), (("--optional",), 0)):
        lacking = fetch(*words)
        assert (lacking.returncode, lacking.stdout) == (status, "")
        assert "there is no Maven here, so Artemis's brokers cannot be had" in lacking.stderr
    artemis.BROKERS.jars.mkdir(parents=True)
    assert fetch().stdout.strip() == str(artemis.BROKERS.jars)


def test_the_fairest_rival_is_the_one_that_syncs_or_does_not_as_it_does() -> None:
    assert ARTEMIS_FSYNC.rivals == (FSYNC, REPLICATED)
    assert ARTEMIS.rivals == (REPLICATED, FSYNC)
    assert all("two replicas" in one.title for one in CONTESTANTS if one.peer.startswith("artemis"))


def test_a_pair_that_does_not_find_each_other_is_told_with_what_both_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(artemis, "missing", lambda: None)
    monkeypatch.setattr(artemis, "START_TIMEOUT_S", 0.0)
    monkeypatch.setattr(artemis.machine, "sync_ms", lambda _: 1.0)
    monkeypatch.setattr(artemis.Artemis, "_serves", lambda self: len(self._servers) == 1)

    def launched(self: artemis.Artemis, role: str) -> None:
        number = artemis.ROLES.index(role) + 1
        self._servers[role] = self._spawn(["echo", f"{role} looks for the other one"], number)
        self._servers[role].wait()

    monkeypatch.setattr(artemis.Artemis, "_launch", launched)
    peer = artemis.Artemis("cached", tmp_path)
    with pytest.raises(PeerFailed, match=r"(?s)did not happen.*primary looks for .*backup looks for"), running(peer):
        raise AssertionError("it is not up")


@pytest.mark.parametrize(("durability", "syncs"), [("fsync", "true"), ("cached", "false")])
def test_only_syncing_differs_and_nothing_is_dropped_or_reached_from_outside(
    durability: artemis.Durability, syncs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artemis, "missing", lambda: None)
    peer = artemis.Artemis(durability)
    for role, other in (("primary", "backup"), ("backup", "primary")):
        core = ElementTree.fromstring(peer.configuration(role)).find(f"{CORE}core")
        assert core is not None
        assert core.findtext(f"{CORE}journal-datasync") == syncs
        assert core.findtext(f"{CORE}large-message-sync", "true") == syncs
        # As it ships, which is true: senders wait for the journal.
        assert core.find(f"{CORE}journal-sync-non-transactional") is None
        acceptors = [one.text for one in core.iter(f"{CORE}acceptor")]
        assert len(acceptors) == 1
        assert str(acceptors[0]).startswith(f"tcp://127.0.0.1:{peer.ports[role]}?")
        connectors = {one.get("name"): one.text for one in core.iter(f"{CORE}connector")}
        assert connectors["other"] == f"tcp://127.0.0.1:{peer.ports[other]}"
        assert [one.text for one in core.iter(f"{CORE}address-full-policy")] == ["PAGE"]
        assert len(list(core.iter(f"{CORE}{role}"))) == 1


def stored(peer: artemis.Artemis, name: str) -> tuple[int, int]:
    """How many messages are in a queue, and how many of them are in the journal."""
    counts = [peer.ask(f"queue.{name}", {"_AMQ_Attribute": which}) for which in ("MessageCount", "DurableMessageCount")]
    return counts[0], counts[1]


@needs_artemis
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_pair_stores_serves_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artemis, "WARM_UP_S", 0.2)
    with running(artemis.Artemis("cached", tmp_path)) as peer:
        assert isinstance(peer, artemis.Artemis)
        processes = peer.processes()
        assert set(processes) == {"primary", "backup"}
        sockets = [socket for process in processes.values() for socket in process.net_connections("tcp")]
        assert {socket.laddr.ip for socket in sockets if socket.status == "LISTEN"} == {"127.0.0.1"}
        target = peer.create("queue")
        assert target.leader == "primary"
        plan = LoadPlan(
            senders=2, receivers=1, send_urls=(target.send_url,), receive_urls=(target.receive_url,), count=1000,
            size=100, window=100, send_options=target.send_options,
            receive_options=dataclasses.replace(target.tail_options, settled=True),
        )  # fmt: skip
        report = Load(plan).run()
        sent, received = report["send"], report["receive"]
        assert (sent["events"], sent["unsettled"], sent["outcomes"]) == (2000, 0, {})
        seen = (received["events"], received["gaps"], received["repeats"], received["foreign"])
        assert seen == (2000, 0, 0, 0)
        # What does not say that it is durable would be acknowledged and be nowhere but in memory.
        sending = dataclasses.replace(plan, senders=1, receivers=0, count=50)
        Load(sending).run()
        Load(dataclasses.replace(sending, send_options=LinkOptions())).run()
        # What was read goes out of the queue a little after it was read.
        wait_until(lambda: stored(peer, target.name) == (100, 50), "storing of what is durable and of nothing else", 20)
        large = Load(dataclasses.replace(sending, size=1 << 20, count=3)).run()["send"]
        assert (large["events"], large["outcomes"]) == (3, {})
        assert stored(peer, target.name) == (103, 53)
        peer.delete(target)
        row = Row("r", "a row", (ARTEMIS,), mode="backlog", size=100, count=2000)
        cell = measure(row, ARTEMIS, {ARTEMIS.peer: peer}, 1.0)
        assert cell.problems == ()
        assert (cell.driver["receive"]["events"] >= 2000, cell.events_per_s > 0) == (True, True)
        assert cell.driver["receive"]["readings"] == 1, "what was read is gone"

        # The backup has what was acknowledged, and without a backup no figure goes without a word.
        target = peer.create("queue")
        Load(dataclasses.replace(sending, send_urls=(target.send_url,))).run()
        processes["primary"].kill()
        peer.start_again("primary")
        assert peer.active == "backup"
        assert stored(peer, target.name) == (50, 50)
        lost = peer.processes()["primary"]
        lost.kill()
        lost.wait(20)
        with pytest.raises(PeerFailed):
            peer.delete(target)
    assert not any(tmp_path.iterdir())
    assert not any(psutil.pid_exists(process.pid) for process in processes.values())
