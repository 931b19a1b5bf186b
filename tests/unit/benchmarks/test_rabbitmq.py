"""The RabbitMQ peer: a real cluster comes up, serves, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from benchmarks.driver.load import Load, LoadPlan
from benchmarks.peers import rabbitmq
from benchmarks.peers.base import PeerUnavailable, running
from benchmarks.peers.rabbitmq import RabbitMQ

needs_rabbitmq = pytest.mark.skipif(not rabbitmq.SERVER.exists(), reason="rabbitmq-server is not installed")


def test_a_missing_installation_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rabbitmq, "SERVER", Path("/nonexistent/rabbitmq-server"))
    with pytest.raises(PeerUnavailable, match="apt-get install rabbitmq-server"):
        RabbitMQ()


@needs_rabbitmq
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_three_nodes_serve_both_kinds_and_leave_nothing_behind(tmp_path: Path) -> None:
    with running(RabbitMQ(tmp_path)) as peer:
        processes = peer.processes()
        assert len(processes) == 3
        sockets = [socket for process in processes.values() for socket in process.net_connections("tcp")]
        assert {socket.laddr.ip for socket in sockets if socket.status == "LISTEN"} == {"127.0.0.1"}
        for kind in ("quorum", "stream"):
            target = peer.create(kind)
            assert target.leader in processes
            plan = LoadPlan(
                senders=1, receivers=1, send_urls=(target.send_url,), receive_urls=(target.receive_url,), count=2000,
                size=100, send_options=target.send_options, receive_options=target.tail_options,
            )  # fmt: skip
            report = Load(plan).run()
            assert (report["send"]["events"], report["receive"]["events"]) == (2000, 2000)  # type: ignore[index]
            peer.delete(target)
    assert not any(tmp_path.iterdir())
    assert not any(psutil.pid_exists(process.pid) for process in processes.values())
