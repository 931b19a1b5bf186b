"""How a run leaves its cluster, whatever became of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos import run as runs
from chaos.checkers.verdict import Result
from chaos.cluster.cluster import ChaosCluster
from chaos.cluster.nodes import NodeFailed
from chaos.history.history import History
from chaos.run import CannotRun, RunPlan, note_stored
from node.storage import NodeIdentity, Store


class Noting(ChaosCluster):
    """Comes as far as to the making of a log."""

    beginning = ending = "noted"

    def __init__(self, directory: Path, error: BaseException) -> None:
        super().__init__(directory, "noting")
        self.nodes = {}
        self.noted: list[str] = []
        self._error = error

    def servers(self, who: str) -> list[str]:
        return []

    def direct(self, node: int) -> str:
        return ""

    def start(self, *numbers: int) -> None:
        self.noted.append("start")

    def spawn(self, *numbers: int) -> None:
        self.noted.append("spawn")

    def kill(self, *numbers: int) -> None:
        self.noted.append("kill")

    def heal(self) -> None:
        self.noted.append("heal")

    def conclude(self) -> None:
        self.noted.append("conclude")

    def let_go(self) -> None:
        self.noted.append("let go")

    def keep_logs(self) -> None:
        self.noted.append("keep logs")

    def create_log(self, log: str, partitions: int) -> None:
        raise self._error

    def close(self) -> None:
        self.noted.append("close")
        super().close()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Noting]:
    """What `run` takes for its cluster, the last one of this list."""
    clusters: list[Noting] = []
    monkeypatch.setattr(runs, "ProxiedCluster", lambda *arguments: clusters[-1])
    monkeypatch.setattr(runs, "find_server", lambda: Path("/bin/true"))
    monkeypatch.setattr(runs.ProxyServer, "start", lambda self: None)
    return clusters


def test_the_logs_of_a_run_that_has_failed_are_kept_once_everything_is_undone(
    made: list[Noting], tmp_path: Path
) -> None:
    made.append(Noting(tmp_path, NodeFailed(1, "ended by itself")))
    done = runs.run(RunPlan("W1", ("F1",)), tmp_path / "run")
    assert done.judgement.result is Result.FAILED
    assert made[-1].noted == ["start", "let go", "keep logs", "close"]


@pytest.mark.parametrize("error", [CannotRun("a host was lost"), KeyboardInterrupt()])
def test_a_run_that_proves_nothing_keeps_none(made: list[Noting], tmp_path: Path, error: BaseException) -> None:
    made.append(Noting(tmp_path, error))
    with pytest.raises(type(error)):
        runs.run(RunPlan("W1", ("F1",)), tmp_path / "run")
    assert made[-1].noted == ["start", "let go", "close"]


def test_a_disk_that_cannot_be_read_is_a_finding_and_no_end(tmp_path: Path) -> None:
    class Stopped(Noting):
        def stores(self) -> dict[int, Path]:
            return {node: tmp_path / str(node) for node in (1, 2, 3)}

    cluster = Stopped(tmp_path, CannotRun("is not run"))
    for node, data_dir in cluster.stores().items():
        with Store(data_dir, NodeIdentity(cluster.name, node)) as disk:
            disk.sync()
    (tmp_path / "2" / "synced").write_bytes(b"")
    history = History()
    note_stored(history, cluster, {7: 0, 8: 1})
    cluster.close()
    assert [one.node for one in history.complaints] == [2]
    assert "damaged" in history.complaints[0].text
