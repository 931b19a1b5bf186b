"""A leader's appends leave before it has written them: they promise nothing."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.raft import RaftOptions
from tests.unit.raft.cluster import RaftStage, kinds


def led_by_one() -> RaftStage:
    stage = RaftStage(options=RaftOptions(eager_appends=True))
    stage.elect(1)
    stage.run(0.05)
    return stage


def test_eager_appends_commit_the_same_and_nothing_before_the_own_sync() -> None:
    stage = led_by_one()
    outcomes = stage.propose(1, "a")
    multiraft = stage.multirafts[1]
    turn = multiraft.turn()
    assert turn is not None
    assert turn.needs_sync
    assert any(m.append.entries for _, _, m in stage.sent[-2:]), "followers write while the leader syncs"
    assert outcomes == []
    multiraft.release(turn)
    stage.run(0.05)
    assert kinds(outcomes) == ["Committed"]


def test_eager_appends_leave_before_the_leader_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = led_by_one()
    stage.propose(1, "a")
    disk, sent = stage.disks[1], []
    write = disk.write

    def writing(batch: Any) -> None:
        sent.append(sum(bool(m.append.entries) for _, _, m in stage.sent[before:]))
        write(batch)

    before = len(stage.sent)
    monkeypatch.setattr(disk, "write", writing)
    assert stage.multirafts[1].turn() is not None
    assert sent == [2], "one to each follower"
