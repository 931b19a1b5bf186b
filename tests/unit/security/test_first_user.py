"""The first user that a node is configured with: read whole or refused, and nobody is let in before there is one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest

from cluster.metadata import CommandProposer, MetadataView, Ok, Refusal, UserRecord
from holdfast.client.transport.security.scram import password_keys
from node.admin.errors import AdminRequestFailed
from node.config import ConfigError, SecuritySection
from node.security.authorisation import NoAccess
from node.startup import first_user
from node.startup.first_user import first_user_of, have_first_user
from node.startup.listener_security import Gates


@pytest.fixture
def path(tmp_path: Path) -> Path:
    written = tmp_path / "first-user.json"
    written.write_text(json.dumps({"name": "ops", **password_keys("pencil")}))
    return written


@pytest.mark.parametrize("anonymous", ["loopback", "always"])
def test_with_a_first_user_to_come_a_cluster_without_users_is_not_open(path: Path, anonymous: Any) -> None:
    view = cast(MetadataView, NoAccess())
    for section, is_open in (
        (SecuritySection(anonymous=anonymous), True),
        (SecuritySection(anonymous=anonymous, first_user_file=str(path)), False),
    ):
        gates = Gates(section, view)
        assert gates._policy.is_open is is_open
        gates.close()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": "ops"}', '{"name": "no name", "scram_sha_256": "1:::"}'])
def test_a_file_that_is_none_is_refused(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"security\.first_user_file: .*first-user\.json"):
        first_user_of(str(path))


def test_it_is_asked_for_until_a_majority_answers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_user, "ASK_AGAIN_S", 0)
    user = first_user_of(str(path))
    assert user is not None
    unsure: list[Exception | None] = [AdminRequestFailed("unavailable", "no leader"), None, None, None, None]
    answers = [Refusal("unknown", "perhaps done"), Ok()]
    asked: list[Any] = []
    view = NoAccess()

    async def current() -> None:
        if (error := unsure.pop(0)) is not None:
            raise error

    class Proposer:
        async def execute(self, command: Any) -> Any:
            asked.append(command.put_user)
            answer = answers.pop(0)
            if isinstance(answer, Ok):
                view.users = {"ops": cast(UserRecord, None)}
            return answer

    async def run() -> None:
        proposer = cast(CommandProposer, Proposer())
        await have_first_user(user, proposer, cast(MetadataView, view), current)

    asyncio.run(run())
    assert (len(unsure), answers) == (1, [])
    assert [(one.name, one.is_new, list(one.roles)) for one in asked] == [("ops", True, ["admin"])] * 2
