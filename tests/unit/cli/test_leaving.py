"""Watching a node that leaves: how it ends, and that it changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from holdfast.cli.shared import leaving
from holdfast.cli.shared.command_frame import CommandFrame
from holdfast.cli.shared.errors import CliError
from holdfast.cli.shared.output import Output
from holdfast.client.errors import AdminError


class LeavingNode:
    """A cluster in which node 3 leaves: each look takes the next answer, and the last one stays."""

    def __init__(self, *answers: Any) -> None:
        self.output = Output(as_json=False, progress=False)
        self._answers = list(answers)

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[LeavingNode]:
        yield self

    async def remove_node(self, node: int, *, dry_run: bool) -> dict[str, Any]:
        assert (node, dry_run) == (3, True), "watching changes nothing"
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return dict(answer)

    async def list_moves(self) -> dict[str, Any]:
        move = {"log": "a", "partition": "0", "waits_for": "node 4 does not answer", "bytes_left": 5}
        return {"moves": [move], "unsettled": ["node 4 does not answer"]}


def watch(*answers: Any, wait_s: float = 60.0) -> None:
    leaving.watch(cast(CommandFrame, LeavingNode(*answers)), 3, 2, wait_s)


KEEPS_TWO = {"node": 3, "state": "leaving", "replicas": 2}
REMOVED = AdminError("node 3 was removed already", code="not-found", status=404, retriable=False, kind="node")


def test_it_ends_when_the_node_is_removed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(leaving, "LOOK_EVERY_S", 0.0)
    watch(KEEPS_TWO, KEEPS_TWO, REMOVED)
    assert "node 3 is removed" in capsys.readouterr().out


def test_when_the_time_is_over_it_says_what_is_waited_for() -> None:
    with pytest.raises(CliError, match="node 3 keeps 2 replicas still; a/0: node 4 does not answer") as error:
        watch(KEEPS_TWO, wait_s=0.0)
    assert "holdfast node cancel 3" in error.value.advice


def test_a_removal_that_was_taken_back_is_not_waited_for() -> None:
    with pytest.raises(CliError, match="does not leave any more"):
        watch({**KEEPS_TWO, "state": "active"})


def test_ctrl_c_ends_the_watching_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        watch(KeyboardInterrupt())
    assert "node 3 goes on leaving" in capsys.readouterr().err
