"""The first user of a cluster, from the nodes' configuration, so that the cluster is never open.

Problem: an administrator has to be let in to add the first user. A cluster that is open for that is open to everybody,
and a play that builds a cluster on a network cannot keep others away meanwhile.
Rules never broken: a node that is configured with a first user lets nobody in without a credential, from its first
moment on. The user is added only where a majority confirms that there is no user at all, and else nothing is changed: a
user with a newer password, or one that was removed, stays so. The file holds what SCRAM keeps of a password, and not
the password.
Rejected: users that stand in the configuration for good; of two that differ, each node would believe its own.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from cluster.metadata import ADMIN_ROLE, CommandProposer, MetadataView, Refusal, ScramKeys, put_user
from node.admin.errors import AdminRequestFailed
from node.admin.users_and_grants import SECRET_BYTES, keys_from
from node.config import ConfigError

log = logging.getLogger(__name__)

ASK_AGAIN_S = 0.5
"""Delay between attempts while the metadata have no leader; its election takes about as long."""

PASSING = ("unavailable", "unknown")
"""Codes of refusals that end when a majority is there."""


@dataclass(frozen=True)
class FirstUser:
    name: str
    keys: tuple[ScramKeys, ScramKeys]


def first_user_of(path: str) -> FirstUser | None:
    """Read the first user's file, as `holdfast user keys` writes it. Raises ConfigError."""
    if not path:
        return None
    where = f"security.first_user_file: {path}"
    try:
        told = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where} cannot be read: {error}") from error
    if not isinstance(told, dict) or not isinstance(told.get("name"), str):
        raise ConfigError(f"{where} names no user; write it with `holdfast user keys NAME`")
    try:
        return FirstUser(told["name"], keys_from(told))
    except AdminRequestFailed as error:
        raise ConfigError(f"{where}: {error}; write it with `holdfast user keys NAME`") from error


async def have_first_user(
    user: FirstUser, proposer: CommandProposer, view: MetadataView, current: Callable[[], Awaitable[None]]
) -> None:
    """Wait until this node knows users, and add the first if there is none. All nodes may do this at once: a user is
    new only once."""
    while True:
        try:
            await current()
            if view.users:
                return
            await _add(user, proposer)
        except AdminRequestFailed as error:
            if error.code not in PASSING:
                log.error("security.first_user_file: the cluster refuses %r, nobody can log in: %s", user.name, error)
                return
            log.warning("the cluster's first user is not added yet: %s", error)
            await asyncio.sleep(ASK_AGAIN_S)


async def _add(user: FirstUser, proposer: CommandProposer) -> None:
    secret = secrets.token_bytes(SECRET_BYTES)
    result = await proposer.execute(put_user(user.name, user.keys, is_new=True, roles=[ADMIN_ROLE], secret=secret))
    if not isinstance(result, Refusal):
        log.info("the cluster's first user is %r, an administrator", user.name)
    elif result.code != "already-exists":
        raise AdminRequestFailed(result.code, result.message)
