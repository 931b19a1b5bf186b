"""Who votes on metadata: the next wish, and the configurations that wishes lead to."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping

import pytest

from cluster.raft.membership.changes import AppendConfiguration, HandLeadershipOver, LeaderView, next_step
from cluster.raft.membership.configuration import Configuration, Replica, founding, is_legal
from node.members.metadata_voters import KnownCluster, Standing, metadata_wish, wanted_voters


def founders(*nodes: int, **standing: object) -> dict[int, Standing]:
    return {node: Standing(1, **standing) for node in nodes}  # type: ignore[arg-type]


def settled(
    latest: Configuration,
    nodes: Mapping[int, Standing],
    *,
    removed: Collection[int] = (),
    near: Collection[int] | None = None,
    announced: int = 0,
    leader: int = 1,
) -> Configuration:
    """The configuration in which nothing more is wished. Each on the way is a legal one."""
    for _ in range(100):
        at_hand = {one.node for one in latest.replicas} - set(removed) if near is None else set(near)
        wish = metadata_wish(latest, KnownCluster(leader, nodes, removed, announced, at_hand))
        if wish is None and not latest.is_joint:
            return latest
        step = next_step(wish, latest, LeaderView(leader, may_append=True, near=at_hand | {leader}))
        if isinstance(step, HandLeadershipOver):
            leader = min(step.candidates)
            continue
        assert isinstance(step, AppendConfiguration), step
        assert is_legal(latest, step.configuration), (latest, step.configuration)
        latest = step.configuration
    raise AssertionError("it does not come to rest")


def voters(configuration: Configuration) -> list[int]:
    return sorted(one.node for one in configuration.voters)


def learners(configuration: Configuration) -> list[int]:
    return sorted(one.node for one in configuration.learners)


def test_numbers_of_voters() -> None:
    assert [wanted_voters(nodes) for nodes in range(1, 10)] == [1, 2, 3, 3, 5, 5, 5, 5, 5]


def test_a_node_that_comes_follows_first_and_votes_if_it_is_needed() -> None:
    four = {**founders(1, 2, 3), 4: Standing(2)}
    result = settled(founding([1, 2, 3]), four)
    assert (voters(result), learners(result)) == ([1, 2, 3], [4])
    result = settled(result, {**four, 5: Standing(3)})
    assert voters(result) == [1, 2, 3, 4, 5]


def test_places_are_given_in_the_order_of_births() -> None:
    nodes = {**founders(1, 2, 3), 5: Standing(2), 4: Standing(3, is_leaving=True), 6: Standing(4)}
    wish = metadata_wish(founding([1, 2, 3]), KnownCluster(1, nodes))
    assert wish is not None
    assert wish.learner == Replica(5, 2)
    assert learners(settled(founding([1, 2, 3]), nodes, near=[])) == [4, 5, 6]


@pytest.mark.parametrize("nodes", range(1, 8))
def test_a_cluster_keeps_the_voters_that_it_began_with(nodes: int) -> None:
    latest = founding(range(1, nodes + 1))
    assert settled(latest, founders(*range(1, nodes + 1))) is latest


def test_of_more_than_seven_founders_five_vote() -> None:
    latest = founding(range(1, 32))
    assert (voters(latest), len(latest.learners)) == ([1, 2, 3, 4, 5], 26)
    assert settled(latest, founders(*range(1, 32))) is latest


def test_founders_are_surplus_once_one_of_them_has_left() -> None:
    nodes = {**founders(1, 2, 3, 4, 5, 6), 7: Standing(1, is_leaving=True)}
    result = settled(founding(range(1, 8)), nodes)
    assert (len(voters(result)), 7 in voters(result), 1 in voters(result)) == (5, False, True)


def test_who_leaves_gives_its_vote_away_and_stays_as_a_learner() -> None:
    nodes = {1: Standing(1), 2: Standing(1, is_leaving=True), 3: Standing(1), 4: Standing(2)}
    result = settled(founding([1, 2, 3]), nodes)
    assert (voters(result), learners(result)) == ([1, 3, 4], [2])


def test_a_leader_that_leaves_hands_over_first() -> None:
    nodes = {1: Standing(1, is_leaving=True), 2: Standing(1), 3: Standing(1), 4: Standing(2)}
    assert voters(settled(founding([1, 2, 3]), nodes)) == [2, 3, 4]


def test_who_was_removed_loses_its_place() -> None:
    nodes = {**founders(1, 2, 3), 4: Standing(2)}
    four = settled(founding([1, 2, 3]), nodes)
    del nodes[4]
    assert learners(settled(four, nodes, removed=[4])) == []
    del nodes[3]
    assert voters(settled(four, nodes, removed=[3, 4])) == [1, 2]


def test_who_is_away_gives_its_vote_to_one_that_is_there() -> None:
    nodes = {1: Standing(1), 2: Standing(1), 3: Standing(1, is_away=True)}
    latest = founding([1, 2, 3])
    assert settled(latest, nodes, near=[1, 2]) is latest, "there is nobody else"
    result = settled(latest, {**nodes, 4: Standing(2)}, near=[1, 2, 4])
    assert (voters(result), learners(result)) == ([1, 2, 4], [3])


def test_one_voter_becomes_three_and_not_two() -> None:
    nodes = {1: Standing(1), 2: Standing(2)}
    two = settled(founding([1]), nodes, announced=1)
    assert (voters(two), learners(two)) == ([1], [2])
    nodes[3] = Standing(3)
    assert voters(settled(two, nodes, near=[1, 2])) == [1]
    assert voters(settled(two, nodes, near=[1, 2, 3])) == [1, 2, 3]
    assert voters(settled(founding([1]), {1: Standing(1), 2: Standing(2)})) == [1, 2]


def test_voters_stand_in_different_racks() -> None:
    nodes = {1: Standing(1, "a"), 2: Standing(1, "a"), 3: Standing(1, "b"), 4: Standing(2, "c"), 5: Standing(3, "a")}
    del nodes[5]
    assert voters(settled(founding([1, 2, 3]), nodes)) == [1, 3, 4]
    nodes = {1: Standing(1, "a"), 2: Standing(1, "b"), 3: Standing(1, "c", is_leaving=True)}
    nodes |= {4: Standing(2, "a"), 5: Standing(3, "c"), 6: Standing(4, "b")}
    assert 5 in voters(settled(founding([1, 2, 3]), nodes))


def test_whatever_happens_it_comes_to_rest_with_the_wanted_number() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        nodes: dict[int, Standing] = founders(*range(1, chance.randint(1, 5) + 1), rack="a")
        latest, birth, removed = founding(nodes), 2, set[int]()
        for _ in range(12):
            if chance.random() < 0.5 and len(nodes) < 9:
                nodes[birth + 10] = Standing(birth, chance.choice("abc"))
                birth += 1
            elif len(nodes) > 1:
                gone = chance.choice(sorted(nodes))
                nodes[gone] = Standing(nodes[gone].birth, nodes[gone].rack, is_leaving=True)
                latest = settled(latest, nodes, removed=removed, leader=voters(latest)[0])
                assert gone not in voters(latest)
                del nodes[gone]
                removed.add(gone)
            latest = settled(latest, nodes, removed=removed, leader=voters(latest)[0])
            assert {one.node for one in latest.replicas} == set(nodes)
            kept = all(one.birth == 1 for one in latest.voters)
            assert len(latest.voters) == wanted_voters(len(nodes)) or kept
