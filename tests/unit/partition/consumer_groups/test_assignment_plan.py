"""Who gets which partition: fair shares, and no move that is not needed."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace

import pytest

from node.partition.consumer_groups.assignor import (
    Assignment,
    Held,
    PartitionOwnership,
    WaitingLink,
    decide,
)

NOBODY: frozenset[Held] = frozenset()


def ownerships(owners: str, **more: object) -> list[PartitionOwnership]:
    """One partition for each letter, owned by the member of that name; `.`: free."""
    return [
        PartitionOwnership(str(place)) if owner == "." else PartitionOwnership(
            str(place), 1, True, True, owner, f"{owner}/{place}", 100 + place % 2, **more  # type: ignore[arg-type]
        )
        for place, owner in enumerate(owners)
    ]  # fmt: skip


def waiting_links(members: str) -> list[WaitingLink]:
    """One waiting link each, in this order."""
    return [WaitingLink(member, f"{member}/new{place}", 1, float(place), 0.0) for place, member in enumerate(members)]


def who(decision: Assignment) -> dict[str, str]:
    """Partition to member."""
    return {partition: identity[0] for identity, partition in decision.assigned.items()}


@pytest.mark.parametrize(
    ("owners", "waiting", "given"),
    [
        ("...", "a", {"0": "a"}),
        ("...", "aab", {"0": "a", "1": "b", "2": "a"}),
        ("aa.", "ab", {"2": "b"}),
        ("aab.", "abc", {"3": "c"}),
        (".", "ab", {"0": "a"}),
    ],
)
def test_a_free_partition_goes_to_the_waiting_member_with_the_least(
    owners: str, waiting: str, given: dict[str, str]
) -> None:
    assert who(decide(ownerships(owners), waiting_links(waiting), {}, NOBODY)) == given


@pytest.mark.parametrize(
    ("owners", "waiting", "loses"),
    [
        ("aaaa", "b", ["a"]),
        ("aaaa", "bb", ["a", "a"]),
        ("aaaa", "bbb", ["a", "a"]),
        ("aaabb", "c", ["a"]),
        ("aaabb", "cc", ["a"]),
        ("aabb", "c", ["a"]),
        ("ab", "c", []),
        ("aab", "b", []),
        ("aab", "c", ["a"]),
        ("aaaabbbb", "cc", ["a", "b"]),
    ],
)
def test_who_has_more_than_its_share_loses_only_the_excess(owners: str, waiting: str, loses: list[str]) -> None:
    decision = decide(ownerships(owners), waiting_links(waiting), {}, NOBODY)
    assert sorted(ownership.member for ownership in decision.revoke)[: len(loses)] == loses or Counter(
        ownership.member for ownership in decision.revoke
    ).total() == len(loses)
    assert len(decision.revoke) == len(loses)
    assert len(decision.entitled) == len(loses)


def test_what_is_being_let_go_or_kept_for_somebody_is_not_asked_for_twice() -> None:
    owned = ownerships("aaaa")
    first = decide(owned, waiting_links("b"), {}, NOBODY)
    (victim,) = first.revoke
    second = decide(owned, waiting_links("b"), {}, frozenset({victim.held}))
    assert (second.revoke, second.entitled) == ([], frozenset({"b/new0"}))
    freed = [PartitionOwnership(ownership.partition) if ownership is victim else ownership for ownership in owned]
    kept = decide(freed, waiting_links("b"), {victim.partition: "b"}, NOBODY)
    assert len(kept.revoke) == 1  # b waits for its second one
    assert kept.assigned == {}


def test_a_link_gets_its_own_partition_back_while_its_claim_stands() -> None:
    owned = [
        replace(ownership, present=False) if ownership.partition == "2" else ownership
        for ownership in ownerships("aab.")
    ]
    decision = decide(owned, [WaitingLink("b", "b/2", 1, 5.0, 0.0), *waiting_links("a")], {}, NOBODY)
    assert decision.assigned == {"b/2": "2", "a/new0": "3"}


def test_an_owner_that_is_silent_or_chose_its_partition_by_an_epoch_is_not_moved() -> None:
    silent = [replace(ownership, present=False) for ownership in ownerships("aaaa")]
    assert decide(silent, waiting_links("b"), {}, NOBODY).revoke == []
    assert decide(ownerships("aaaa", epoch=1), waiting_links("b"), {}, NOBODY).revoke == []


def test_a_partition_led_by_the_waiting_links_node_is_preferred() -> None:
    free = [PartitionOwnership("0", 1), PartitionOwnership("1", 2), PartitionOwnership("2", 3)]
    decision = decide(free, [WaitingLink("a", "a/x", 3, 0.0, 0.0), WaitingLink("b", "b/x", 2, 1.0, 0.0)], {}, NOBODY)
    assert decision.assigned == {"a/x": "2", "b/x": "1"}


@pytest.mark.parametrize("seed", range(20))
def test_members_that_come_and_go_end_in_fair_shares_by_as_few_moves_as_possible(seed: int) -> None:
    """Every member always has a link waiting. After each arrival or departure decisions are carried out until there are
    none; then the shares differ by one at most, and no more moved than the newcomer's share."""
    rng = random.Random(seed)
    count = rng.randrange(1, 20)
    owner: dict[str, str] = {}
    claims = itertools.count(1)
    claim: dict[str, int] = {}
    members: list[str] = []

    def now() -> list[PartitionOwnership]:
        return [
            PartitionOwnership(str(p), 1, True, True, owner[str(p)], f"{owner[str(p)]}/{p}", claim[str(p)])
            if str(p) in owner
            else PartitionOwnership(str(p))
            for p in range(count)
        ]

    def settle() -> int:
        moves = 0
        for _ in range(10 * count):
            waiting = [
                WaitingLink(member, f"{member}/new", 1, float(place), 0.0) for place, member in enumerate(members)
            ]
            decision = decide(now(), waiting, {}, NOBODY)
            for identity, partition in decision.assigned.items():
                assert partition not in owner
                owner[partition], claim[partition] = identity.removesuffix("/new"), next(claims)
            for ownership in decision.revoke:
                moves += 1
                del owner[ownership.partition]
            if not decision.assigned and not decision.revoke:
                return moves
        raise AssertionError("it never settles")

    for step in range(30):
        if members and rng.random() < 0.4:
            leaver = members.pop(rng.randrange(len(members)))
            for partition in [partition for partition, member in owner.items() if member == leaver]:
                del owner[partition]
            assert settle() == 0, "nobody else loses anything when a member leaves"
        else:
            before = Counter(owner.values())
            members.append(f"m{step}")
            moves = settle()
            share = count // len(members)
            assert moves == (0 if not before else share)
        if members:
            assert len(owner) == count
            shares = [list(owner.values()).count(member) for member in members]
            assert max(shares) - min(shares) <= 1
