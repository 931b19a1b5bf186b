"""What the groups of a coordinator may cost: names, members, writers, and when a writer is forgotten."""

from __future__ import annotations

import pytest

from node.transaction_coordinator.coordinator_commands import Added, ForgetIdle, Forgotten
from node.transaction_coordinator.transaction_groups import group_state_machine as writers_module
from node.transaction_coordinator.transaction_groups.group_commands import (
    AbortGroup,
    GroupDecided,
    JoinGroup,
    OpenGroup,
    WriterForgotten,
    WriterOpened,
)
from tests.unit.transaction_coordinator.driving import DONE, DrivenCoordinator, closed_at, code_of, opened, outcome

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def coordinator() -> DrivenCoordinator:
    return DrivenCoordinator()


def test_names_and_numbers_are_bounded(coordinator: DrivenCoordinator) -> None:
    def refused(command: OpenGroup | JoinGroup) -> bool:
        return code_of(coordinator.apply(command)) == "invalid"

    long = "x" * 300
    for writer in (long, "$w", ""):
        assert refused(OpenGroup(writer, 0, "r", "", 1000))
    assert refused(OpenGroup("w", -1, "r", "", 1000))
    assert refused(OpenGroup("w", 1, "", "", 1000))
    assert refused(OpenGroup("w", 1, long, "", 1000))
    assert refused(OpenGroup("w", 1, "r", long, 1000))
    assert refused(OpenGroup("w", 1, "r", "", 0))
    assert refused(OpenGroup("w", 1, "r", "", 4 * 3600 * 1000 + 1))
    opened(coordinator.open_group())
    assert refused(JoinGroup("w", 0, "r", "", "0", "h", 2000))
    assert refused(JoinGroup("w", 0, "r", long, "0", "h", 2000))
    assert refused(JoinGroup("w", 0, "r", "0", long, "h", 2000))
    assert refused(JoinGroup("w", 0, "r", "0", "0", "", 2000))
    assert refused(JoinGroup("w", 0, "r", "0", "0", "h", 1999))
    assert refused(JoinGroup("w", 0, "r", "0", "0", "h", 5 * 60 * 1000 + 1))


def test_members_and_writers_are_bounded(coordinator: DrivenCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers_module, "MAX_MEMBERS", 2)
    monkeypatch.setattr(writers_module, "MAX_WRITERS", 1)
    opened(coordinator.open_group())
    coordinator.joined("0")
    coordinator.joined("1")
    assert code_of(coordinator.join("2")) == "too-many"
    assert coordinator.join("1") == coordinator.joined("1"), "who is there already stays"
    assert code_of(coordinator.open_group(writer="another")) == "too-many"


def test_a_writer_is_forgotten_after_its_retention_and_then_it_is_unknown(coordinator: DrivenCoordinator) -> None:
    closed_at(coordinator, 4)
    coordinator.apply(OpenGroup("busy", 1, "r", "", 4 * 3600 * 1000, coordinator.now_ms))
    steps = writers_module.FORGET_WRITER_MS // 60_000
    for _ in range(steps):
        coordinator.now_ms += 60_000
        coordinator.machine.state.lived_ms += 60_000
    assert coordinator.apply(ForgetIdle(coordinator.machine.state.stamped_ms)) == Forgotten(0, [])
    coordinator.live(1)
    assert coordinator.apply(ForgetIdle(coordinator.now_ms)) == Forgotten(0, ["w"]), "the other one has a group open"
    assert coordinator.open_group(4) == WriterOpened(False, -1, False, 60_000), "and the answer says so"


def test_a_writer_of_one_batch_is_forgotten_an_hour_after_its_end(coordinator: DrivenCoordinator) -> None:
    opened(coordinator.open_group(once=True))
    member = coordinator.joined("0", 11)
    coordinator.prepare(member)
    coordinator.live(writers_module.FORGET_ONCE_MS + 1)
    assert coordinator.forget_idle() == Forgotten(0, []), "it has a batch open"
    coordinator.commit_group(member)
    coordinator.mark_all()
    coordinator.open_group(writer="of many")
    coordinator.apply(AbortGroup("of many", 0, "r", timestamp_ms=coordinator.now_ms))
    coordinator.restart()
    coordinator.live(writers_module.FORGET_ONCE_MS)
    assert coordinator.forget_idle() == Forgotten(0, [])
    assert coordinator.open_group() == WriterOpened(True, 0, True, 60_000), "who is late hears that it is done"
    assert coordinator.commit_group(member) == DONE, "and so does a commit whose answer got lost"
    coordinator.live(writers_module.FORGET_ONCE_MS + 1)
    assert coordinator.forget_idle() == Forgotten(0, ["w"]), "the other one is remembered for long"


def test_an_attempt_that_comes_an_hour_late_writes_what_nobody_commits(coordinator: DrivenCoordinator) -> None:
    opened(coordinator.open_group(once=True))
    winner = coordinator.joined("0", 11)
    coordinator.prepare(winner)
    coordinator.commit_group(winner)
    coordinator.mark_all()
    coordinator.live(writers_module.FORGET_ONCE_MS + 1)
    coordinator.forget_idle()
    assert code_of(coordinator.join()) == "unknown-id", "it has to open the batch"
    opened(coordinator.open_group(once=True))
    late = coordinator.joined("0", 11, attempt="1")
    coordinator.prepare(late)
    assert code_of(coordinator.commit_group(winner)) == "not-prepared", "the driver knows other winners"
    coordinator.live(60_000)
    assert coordinator.expire_group() == GroupDecided(False, True)
    assert outcome(coordinator, late) is False


def test_an_operator_has_a_writer_forgotten_that_has_nothing_open(coordinator: DrivenCoordinator) -> None:
    assert code_of(coordinator.forget_writer()) == "unknown-id"
    closed_at(coordinator, 4)
    opened(coordinator.open_group(5))
    assert code_of(coordinator.forget_writer()) == "in-use"
    coordinator.abort_group(5)
    assert coordinator.forget_writer() == WriterForgotten(4)
    coordinator.restart()
    assert coordinator.open_group(4) == WriterOpened(False, -1, False, 60_000), "what it replays is written anew"


def test_ids_that_are_forgotten_are_no_members(coordinator: DrivenCoordinator) -> None:
    opened(coordinator.open_group())
    member = coordinator.joined("0")
    coordinator.machine.state.lived_ms += 8 * DAY_MS
    coordinator.forget_idle()
    assert isinstance(coordinator.write(member, 11), Added)
