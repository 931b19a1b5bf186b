"""Kafka as a contestant: what is missing is said; a real cluster comes up, serves, and leaves nothing behind."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.driver.bounded import LoadPlan
from benchmarks.driver.link import LinkOptions
from benchmarks.driver.wire import PeerError, Url
from benchmarks.matrix.cell import measure
from benchmarks.matrix.contestants import AT_ONCE, CACHED, FLUSHED
from benchmarks.matrix.rows import CONTESTANTS, Row
from benchmarks.peers import kafka
from benchmarks.peers.base import PeerUnavailable, free_ports, running

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "kafka.sh"

needs_client = pytest.mark.skipif(
    not kafka.has_client(), reason="confluent-kafka is not installed (benchmarks/kafka/requirements.lock)"
)
needs_kafka = pytest.mark.skipif(kafka.missing() is not None, reason=str(kafka.missing()))


def test_missing_brokers_are_said_with_what_fetches_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(PeerUnavailable, match=r"rows are left out.*scripts/kafka\.sh"):
        kafka.Kafka()


def test_a_missing_java_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerUnavailable, match=r"a Java of 17 or newer"):
        kafka.Kafka()


def test_the_version_is_the_one_that_is_fetched() -> None:
    assert kafka.BROKERS.version in kafka.BROKERS.jars.name
    assert kafka.BROKERS.version in kafka.BROKERS.pom.read_text()
    assert kafka.BROKERS.version.startswith("4.1.")


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
        assert "there is no Maven here" in lacking.stderr
    kafka.BROKERS.jars.mkdir(parents=True)
    assert fetch().stdout.strip() == str(kafka.BROKERS.jars)


def test_the_fairest_rival_promises_the_same() -> None:
    """By its own client first, then by the AMQP driver; whoever promises something else comes after those."""
    kafkas = [one for one in CONTESTANTS if one.peer == "kafka"]
    assert {FLUSHED, CACHED, AT_ONCE} < {*kafkas}
    for one in kafkas:
        same = "holdfast-fsync" if one.kind == "flush" else "holdfast-replicated"
        ranks = [(rival.peer != same, rival.kind != "own-client") for rival in one.rivals]
        assert ranks[0] == (False, False), one.title
        assert ranks == sorted(ranks), one.title
    assert kafka.KINDS["log"] == {}
    assert kafka.KINDS["flush"] == {"flush.messages": "1"}


@needs_client
def test_missing_brokers_are_an_error_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.kafka import load

    monkeypatch.setattr(load, "ATTACH_TIMEOUT_S", 0.5)
    nobody = (Url("127.0.0.1", free_ports(1)[0], "topic"),)
    with pytest.raises(PeerError, match="the first event was not taken: no answer"):
        load.KafkaLoad(LoadPlan(senders=1, send_urls=nobody, count=1)).run()
    with pytest.raises(PeerError):
        load.KafkaLoad(LoadPlan(receivers=1, receive_urls=nobody, count=1)).run()


def topic_settings(peer: kafka.Kafka, topic: str) -> dict[str, Any]:
    from confluent_kafka.admin import AdminClient, ConfigResource

    asked = ConfigResource("topic", topic)
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{peer.ports[0]}", "log_level": 0})
    found: dict[str, Any] = admin.describe_configs([asked])[asked].result(60)
    return found


@needs_kafka
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_three_brokers_serve_every_kind_and_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.kafka.load import KafkaLoad

    monkeypatch.setattr(kafka, "WARM_UP_S", 0.2)
    with running(kafka.Kafka(tmp_path)) as peer:
        processes = peer.processes()
        assert len(processes) == 3
        sockets = [socket for process in processes.values() for socket in process.net_connections("tcp")]
        assert {socket.laddr.ip for socket in sockets if socket.status == "LISTEN"} == {"127.0.0.1"}
        for kind in ("log", "flush", "log-linger0"):
            target = peer.create(kind)
            assert target.leader in processes
            plan = LoadPlan(
                senders=2, receivers=1, send_urls=(target.send_url,), receive_urls=(target.receive_url,), count=1000,
                size=100, window=100, send_options=target.send_options, receive_options=target.tail_options,
            )  # fmt: skip
            for _ in range(2):  # who reads from the tail sees nothing of the first run in the second
                report = KafkaLoad(plan).run()
                sent, received = report["send"], report["receive"]
                assert (sent["events"], sent["unsettled"], sent["outcomes"]) == (2000, 0, {})
                seen = (received["events"], received["gaps"], received["repeats"], received["foreign"])
                assert seen == (2000, 0, 0, 0)
                assert 0 < sent["latency_ms"]["p50"] <= sent["latency_ms"]["p99"]
            # Every broker knows the topic now: all of them have acknowledged its events.
            settings = topic_settings(peer, target.name)
            assert settings["flush.messages"].value == ("1" if kind == "flush" else str((1 << 63) - 1))
            assert settings["min.insync.replicas"].value == "2"
            again = LoadPlan(
                receivers=1, receive_urls=(target.receive_url,), count=1500,
                receive_options=LinkOptions(start="500"), receive_latency=False, drain_s=5,
            )  # fmt: skip
            found = KafkaLoad(again).run()["receive"]
            assert (found["events"] >= 1500, found["gaps"]) == (True, 0)
            peer.delete(target)
        # What is larger than its topic takes is an outcome with a reason, not an event.
        target = peer.create("log")
        plan = LoadPlan(senders=1, send_urls=(target.send_url,), count=1, size=3 << 20, send_options=LinkOptions(
            properties={"message.max.bytes": str(8 << 20)}))  # fmt: skip
        refused = KafkaLoad(plan).run()["send"]
        assert (refused["events"], refused["outcomes"]) == (0, {"MSG_SIZE_TOO_LARGE": 1})
        row = Row("r", "a row", (CACHED,), mode="backlog", size=100, count=2000)
        cell = measure(row, CACHED, {"kafka": peer}, 1.0)
        assert cell.problems == ()
        assert (cell.driver["receive"]["events"] >= 2000, cell.events_per_s > 0) == (True, True)
    assert not any(tmp_path.iterdir())
    assert not any(psutil.pid_exists(process.pid) for process in processes.values())
