"""Who may vote at the first start of a cluster."""

from __future__ import annotations

from node.startup.bootstrap import Bootstrap


class Group:
    def __init__(self, *, remembers: bool = False) -> None:
        self.remembers_nothing = not remembers
        self.votes = remembers

    def vote_from_the_beginning(self) -> None:
        self.votes = True


def test_a_cluster_begins_when_all_have_met() -> None:
    group = Group()
    bootstrap = Bootstrap(group, {2, 3})
    bootstrap.heard(2, is_new=True)
    assert not group.votes
    assert bootstrap.waits_for() == [3]
    bootstrap.heard(3, is_new=True)
    assert group.votes
    assert bootstrap.waits_for() == []


def test_a_node_alone_begins_at_once() -> None:
    group = Group()
    Bootstrap(group, set())
    assert group.votes


def test_one_that_remembers_is_enough_to_begin_nothing() -> None:
    group = Group()
    bootstrap = Bootstrap(group, {2, 3})
    bootstrap.heard(2, is_new=False)
    bootstrap.heard(3, is_new=True)
    assert not group.votes


def test_who_was_new_and_has_learned_something_since_is_not_new() -> None:
    group = Group()
    bootstrap = Bootstrap(group, {2, 3})
    bootstrap.heard(2, is_new=True)
    bootstrap.heard(2, is_new=False)
    bootstrap.heard(3, is_new=True)
    assert not group.votes


def test_a_node_with_a_memory_waits_for_nobody() -> None:
    assert Bootstrap(Group(remembers=True), {2, 3}).waits_for() == []
