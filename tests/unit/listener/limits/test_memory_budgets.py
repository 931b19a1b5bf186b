"""The books: a connection's budget, its user's account and the node's."""

from __future__ import annotations

import pytest

from node.config import MAX_MESSAGE_SIZE_LIMIT
from node.listener.limits.memory_budgets import CONNECTION_BYTES, FLOOR_BYTES, MOST, Accounts, Budget

MIB = 1024 * 1024


def budgets(accounts: Accounts, user: str, count: int) -> list[Budget]:
    made = [Budget(accounts, 16 * MIB) for _ in range(count)]
    for budget in made:
        budget.belongs_to(user)
    return made


def test_alone_a_connection_has_its_own_limit() -> None:
    accounts = Accounts(128 * MIB, 64 * MIB)
    (one,) = budgets(accounts, "ann", 1)
    one.tell(15 * MIB)
    assert one.limit == 16 * MIB


def test_connections_of_a_user_share_what_the_user_has_and_others_do_not_feel_it() -> None:
    accounts = Accounts(128 * MIB, 64 * MIB)
    greedy = budgets(accounts, "eve", 8)
    for budget in greedy:
        budget.tell(8 * MIB)
    assert {budget.limit for budget in greedy} == {8 * MIB}
    (honest,) = budgets(accounts, "ann", 1)
    assert honest.limit == 16 * MIB


def test_the_share_of_all_shrinks_when_the_node_is_full_and_ends_at_a_floor() -> None:
    accounts = Accounts(100 * MIB, 1000 * MIB)
    (honest,) = budgets(accounts, "ann", 1)
    honest.tell(1)
    greedy = [budget for user in range(9) for budget in budgets(accounts, f"eve{user}", 1)]
    for budget in greedy:
        budget.tell(12 * MIB)
    assert honest.limit == 10 * MIB
    greedy[0].tell(int(MOST * 100 * MIB))
    assert honest.limit == FLOOR_BYTES


def test_those_without_a_credential_are_many_and_have_what_the_node_has() -> None:
    accounts = Accounts(128 * MIB, 64 * MIB)
    many = [Budget(accounts, 16 * MIB) for _ in range(20)]
    for budget in many:
        budget.belongs_to("anonymous", is_many=True)
        budget.tell(4 * MIB)  # a message each, which is on its way
    assert {budget.limit for budget in many} == {16 * MIB}
    many[0].tell(60 * MIB)
    assert many[1].limit == 128 * MIB // 20


def test_the_largest_message_that_may_be_configured_fits_into_a_connection() -> None:
    assert CONNECTION_BYTES >= MAX_MESSAGE_SIZE_LIMIT + 4 * MIB


def test_what_is_given_back_is_nowhere_any_more() -> None:
    accounts = Accounts()
    one, two = budgets(accounts, "ann", 2)
    one.tell(5 * MIB)
    two.tell(3 * MIB)
    two.tell(1 * MIB)
    assert (accounts.node.held, accounts.node.holders) == (6 * MIB, 2)
    one.close()
    two.close()
    assert (accounts.node.held, accounts.node.holders, accounts.users) == (0, 0, 0)


def test_what_was_held_before_the_login_is_the_users_after_it() -> None:
    accounts = Accounts()
    early = Budget(accounts)
    early.tell(7)
    early.belongs_to("ann")
    (other,) = budgets(accounts, "ann", 1)
    assert early.held == 7
    assert accounts.node.held == 7
    early.close()
    other.close()
    assert accounts.users == 0


@pytest.mark.parametrize("holders", [1, 10, 1000])
def test_all_shares_together_are_bounded(holders: int) -> None:
    """Each takes all that it may, one after the other."""
    accounts = Accounts(128 * MIB, 64 * MIB)
    for number in range(holders):
        (budget,) = budgets(accounts, f"user{number}", 1)
        budget.tell(max(budget.limit, 0))
    assert accounts.node.held <= (MOST * 128 + 16) * MIB + holders * FLOOR_BYTES
