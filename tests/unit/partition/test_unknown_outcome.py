"""What a later leader can say of an entry whose proposer never knew, and what it must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.partition.entries.entry_queries import AskFate, Fate
from tests.unit.partition.support import PartitionNode

KNOWN, GONE, NEVER, LATER = Fate(True), Fate(None), Fate(False), Fate(None, pending=True)


async def ask(node: PartitionNode, index: int, term: int) -> object:
    return await node.replica.ask(AskFate(index, term))


async def test_what_is_applied_is_known_by_its_term(tmp_path: Path) -> None:
    with PartitionNode(tmp_path) as node:
        node.append(b"one")
        index, term = node.group.last_index, node.group.term
        assert await ask(node, index, term) == KNOWN
        assert await ask(node, index, term - 1) == NEVER


async def test_nothing_of_an_older_term_comes_behind_the_newer_one(tmp_path: Path) -> None:
    with PartitionNode(tmp_path) as node:
        node.append(b"one")
        before = node.group.term
        node.crash()
        assert node.group.term > before
        assert await ask(node, node.group.last_index + 5, before) == NEVER


async def test_what_the_leader_has_proposed_itself_is_not_decided_yet(tmp_path: Path) -> None:
    with PartitionNode(tmp_path) as node:
        assert await ask(node, node.group.last_index + 1, node.group.term) == LATER


async def test_what_was_trimmed_is_not_known_any_more(tmp_path: Path) -> None:
    with PartitionNode(tmp_path) as node:
        node.append(b"one")
        index, term = node.group.last_index, node.group.term
        node.append(b"two")
        node.group.trim(index)
        node.turns()
        if node.group.first_index <= index:
            pytest.fail("the test's trim did nothing")
        assert await ask(node, index, term) == GONE


async def test_who_does_not_lead_says_nothing(tmp_path: Path) -> None:
    with PartitionNode(tmp_path) as node:
        node.append(b"one")
        index, term = node.group.last_index, node.group.term
        node.step_down()
        assert getattr(await ask(node, index, term), "kind", "") == "not_leader"
