"""What the planner does by itself, and what operators get."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from cluster.metadata import Ok, Refusal, delete_log, finish_move, reassign, register_node, set_balance
from cluster.metadata.planning import plan_balance
from cluster.versions import OURS
from node.admin.errors import AdminRequestFailed
from node.balancing import balancer
from tests.unit.balancing.seen_cluster import GIB, MIB, SeenCluster


def held(cluster: SeenCluster) -> Counter[int]:
    return Counter(node for log in cluster.view.logs.values() for one in log.partitions for node in one.wanted)


def lost_node() -> SeenCluster:
    cluster = SeenCluster(nodes=4)
    cluster.create("trades", partitions=8, replicas=3)
    cluster.lost = {4: 901.0}
    return cluster


def with_new_node(balance: str = "on", bytes_per_s: int = 16 * GIB) -> SeenCluster:
    cluster = SeenCluster(nodes=3, bytes_per_s=bytes_per_s)
    cluster.create("trades", partitions=16, replicas=3)
    cluster.do(register_node(4, "10.0.0.4:7101", {"default": "10.0.0.4:5672"}))
    cluster.do(set_balance(balance))
    return cluster


# -- by itself


async def test_a_lost_node_is_replaced_by_one_command_whose_targets_are_the_plan() -> None:
    cluster = lost_node()
    plan = await cluster.balancer.plan(plan_balance, cluster.view.balance)
    await cluster.balancer.look()
    (command,) = cluster.commands
    assert command.reassign.reason == "node 4 is away"
    assert f"{command.reassign.plan:08x}" == plan.digest
    assert [(item.group, item.version, tuple(item.replicas)) for item in command.reassign.items] == [
        (item.group, item.configuration_version, item.target) for item in plan.reassignments
    ]
    assert held(cluster)[4] == 0


async def test_what_has_a_target_is_not_planned_again() -> None:
    cluster = lost_node()
    await cluster.balancer.look()
    await cluster.balancer.look()
    assert len(cluster.commands) == 1


async def test_a_new_node_gets_its_share_where_that_is_switched_on() -> None:
    cluster = with_new_node("repair")
    await cluster.balancer.look()
    assert cluster.commands == []
    cluster.do(set_balance("on"))
    await cluster.balancer.look()
    assert set(held(cluster).values()) == {12}


async def test_nothing_but_repairs_is_planned_while_moves_are_under_way() -> None:
    cluster = with_new_node()
    record = cluster.view.logs["trades"].partitions[0]
    cluster.do(reassign([(record.group, 1, (4, *record.replicas[1:]))]))
    await cluster.balancer.look()
    assert cluster.commands == []


async def test_a_plan_that_nobody_asked_for_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balancer, "MOST_AT_ONCE", 3)
    cluster = with_new_node()
    await cluster.balancer.look()
    assert [len(command.reassign.items) for command in cluster.commands] == [3]


async def test_who_no_longer_leads_the_metadata_states_nothing() -> None:
    cluster = lost_node()
    cluster.is_leader = False
    await cluster.balancer.look()
    assert cluster.commands == []


@pytest.mark.parametrize(
    ("balance", "lost_s", "version", "due"),
    [
        ("repair", 0.0, OURS.newest, False),
        ("repair", 900.0, OURS.newest, False),
        ("repair", 901.0, OURS.newest, True),
        ("repair", 901.0, OURS.newest - 1, False),
        ("off", 901.0, OURS.newest, False),
        ("on", 0.0, OURS.newest, True),
    ],
)
def test_nobody_is_asked_when_nothing_can_be_due(balance: str, lost_s: float, version: int, due: bool) -> None:
    cluster = SeenCluster(nodes=4, version=version)
    cluster.do(set_balance(balance))
    cluster.lost = {4: lost_s} if lost_s else {}
    assert cluster.balancer.is_due() is due


# -- for operators


async def test_few_plans_are_kept() -> None:
    cluster = SeenCluster(nodes=6)
    cluster.create("trades", partitions=12, replicas=2)
    shown = [(await cluster.admin("cluster.balance", remove=node))["digest"] for node in range(1, 7)]
    assert [cluster.balancer.kept(digest) is not None for digest in shown] == [False] * 2 + [True] * 4


async def test_plans_that_nobody_asked_for_do_not_take_the_place_of_one_that_was_shown() -> None:
    cluster = with_new_node()
    shown = await cluster.admin("cluster.balance")
    cluster.is_leader = False
    for number in range(balancer.KEPT_PLANS + 1):
        cluster.create(f"more{number}", partitions=1, replicas=1)
        await cluster.balancer.look()
    assert cluster.balancer.kept(shown["digest"]) is not None
    assert list(cluster.balancer._kept) == [shown["digest"]]


async def test_a_plan_is_answered_though_others_are_shown_while_it_is_carried_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = with_new_node()
    shown, apply = await cluster.admin("cluster.balance"), cluster.balancer.apply

    async def crowded(plan: Any) -> Any:
        cluster.balancer._kept.clear()
        return await apply(plan)

    monkeypatch.setattr(cluster.balancer, "apply", crowded)
    assert (await cluster.admin("cluster.balance", apply=shown["digest"]))["applied"]


async def test_what_a_dry_run_shows_is_what_is_applied() -> None:
    cluster = with_new_node("repair")
    shown = await cluster.admin("cluster.balance")
    assert (cluster.commands, shown["applied"], shown["partitions"]) == ([], False, len(shown["moves"]))
    assert {one["node"]: one["replicas"] for one in shown["after"]} == {1: 12, 2: 12, 3: 12, 4: 12}
    done = await cluster.admin("cluster.balance", apply=shown["digest"])
    assert {**done, "applied": False} == shown
    (command,) = cluster.commands
    assert [(item.group, list(item.replicas)) for item in command.reassign.items] == [
        (move["group"], move["replicas"]) for move in shown["moves"]
    ]


@pytest.mark.parametrize(("of_cluster", "of_node"), [(MIB, 16 * GIB), (64 * MIB, MIB)])
async def test_a_plan_says_how_long_its_copies_take_at_the_lower_pace(of_cluster: int, of_node: int) -> None:
    """A MiB a second, and a MiB in each partition: the new node gets 12 of them, one after the other."""
    cluster = with_new_node(bytes_per_s=of_node)
    cluster.do(set_balance(pace_bytes_per_s=of_cluster))
    shown = await cluster.admin("cluster.balance")
    assert sum(4 in move["to"] for move in shown["moves"]) == 12
    assert shown["seconds"] == 12
    cluster = SeenCluster(nodes=3)
    assert (await cluster.admin("cluster.balance"))["seconds"] == 0


async def test_sizes_that_change_meanwhile_do_not_make_a_plan_stale() -> None:
    cluster = with_new_node()
    shown = await cluster.admin("cluster.balance")
    cluster.reports = {node: cluster.report_of(3) for node in (1, 2)}
    assert (await cluster.admin("cluster.balance", apply=shown["digest"]))["moves"] == shown["moves"]


async def test_a_plan_that_another_node_showed_is_applied_if_it_is_still_the_same() -> None:
    cluster = with_new_node()
    shown = await cluster.admin("cluster.balance")
    cluster.balancer._kept.clear()
    await cluster.admin("cluster.balance", apply=shown["digest"])
    assert len(cluster.commands) == 1


async def test_a_plan_one_of_whose_partitions_has_changed_is_refused_as_a_whole() -> None:
    cluster = with_new_node()
    shown = await cluster.admin("cluster.balance")
    cluster.do(delete_log("trades"))
    with pytest.raises(AdminRequestFailed, match=f"plan {shown['digest']} cannot be carried out any more: group"):
        await cluster.admin("cluster.balance", apply=shown["digest"])


async def test_a_large_plan_is_stated_in_pieces_that_together_are_what_was_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(balancer, "IN_ONE_COMMAND", 5)
    cluster = with_new_node()
    shown = await cluster.admin("cluster.balance")
    assert len(shown["moves"]) == 12
    await cluster.admin("cluster.balance", apply=shown["digest"])
    assert [len(command.reassign.items) for command in cluster.commands] == [5, 5, 2]
    stated = [(item.group, list(item.replicas)) for command in cluster.commands for item in command.reassign.items]
    assert stated == [(move["group"], move["replicas"]) for move in shown["moves"]]
    assert {f"{command.reassign.plan:08x}" for command in cluster.commands} == {shown["digest"]}
    assert len({command.reassign.reason for command in cluster.commands}) == 1


async def test_of_a_large_plan_that_is_stale_nothing_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balancer, "IN_ONE_COMMAND", 5)
    cluster = with_new_node()
    shown = await cluster.admin("cluster.balance")
    group = shown["moves"][-1]["group"]
    found = cluster.view.group(group)
    assert found is not None
    cluster.do(finish_move(group, 1, 4, found[1].settled))
    with pytest.raises(AdminRequestFailed, match=r"cannot be carried out any more: .* its replicas have changed"):
        await cluster.admin("cluster.balance", apply=shown["digest"])
    assert cluster.commands == []


def _place(move: dict[str, Any]) -> str:
    return f"{move['log']}/{move['partition']}"


@pytest.mark.parametrize(
    ("code", "pieces", "told"),
    [
        ("unavailable", 0, "cannot be carried out any more: no leader"),
        ("unknown", 0, "no leader. It was to move 12 partition(s). "
                       "The first 5 ({0} to {4}) may move, or not: their answer was lost. "
                       "The last 7 ({5} to {11}) stay where they are. `"),
        ("not-allowed", 1, "The first 5 ({0} to {4}) move, or wait for their turn. "
                           "The last 7 ({5} to {11}) stay where they are. `"),
        ("unknown", 1, "The first 5 ({0} to {4}) move, or wait for their turn. "
                       "The next 5 ({5} to {9}) may move, or not: their answer was lost. "
                       "The last 2 ({10} to {11}) stay where they are. `"),
        ("unknown", 2, "The first 10 ({0} to {9}) move, or wait for their turn. "
                       "The last 2 ({10} to {11}) may move, or not: their answer was lost. `"),
    ],
)  # fmt: skip
async def test_a_plan_that_is_broken_off_says_what_was_wanted_what_was_done_and_what_is_left(
    code: str, pieces: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balancer, "IN_ONE_COMMAND", 5)
    cluster = with_new_node()
    shown, execute = await cluster.admin("cluster.balance"), cluster.execute

    async def breaking_off(command: Any) -> Any:
        return Refusal(code, "no leader") if len(cluster.commands) == pieces else await execute(command)

    monkeypatch.setattr(cluster, "execute", breaking_off)
    with pytest.raises(AdminRequestFailed) as refused:
        await cluster.admin("cluster.balance", apply=shown["digest"])
    assert refused.value.code == code
    assert told.format(*map(_place, shown["moves"])) in str(refused.value)
    assert f"plan {shown['digest']} " in str(refused.value)
    targets = [cluster.view.group(move["group"])[1].target for move in shown["moves"]]  # type: ignore[index]
    assert [bool(target) for target in targets] == [place < 5 * pieces for place in range(12)]


async def test_a_plan_of_one_partition_that_is_broken_off_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balancer, "IN_ONE_COMMAND", 11)
    cluster = with_new_node()
    shown, execute = await cluster.admin("cluster.balance"), cluster.execute

    async def breaking_off(command: Any) -> Any:
        return Refusal("unavailable", "no leader") if cluster.commands else await execute(command)

    monkeypatch.setattr(cluster, "execute", breaking_off)
    last = _place(shown["moves"][-1])
    with pytest.raises(AdminRequestFailed, match=rf"\. The last one \({last}\) stays where it is\. "):
        await cluster.admin("cluster.balance", apply=shown["digest"])


async def test_an_unknown_digest_is_refused_with_what_would_be_done_now() -> None:
    cluster = with_new_node()
    with pytest.raises(AdminRequestFailed, match=r"plan 0badcafe is stale.* plan [0-9a-f]{8}: look"):
        await cluster.admin("cluster.balance", apply="0badcafe")
    assert cluster.commands == []


async def test_a_node_is_emptied_or_replaced_by_a_named_one() -> None:
    cluster = SeenCluster(nodes=4)
    cluster.create("trades", partitions=4, replicas=2)
    shown = await cluster.admin("cluster.balance", remove=1)
    assert {node for move in shown["moves"] for node in move["from"]} == {1}
    cluster = with_new_node()
    shown = await cluster.admin("cluster.balance", remove=1, successor=4)
    assert {(*move["from"], *move["to"]) for move in shown["moves"]} == {(1, 4)}


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"remove": 9}, "node 9 is not registered; registered: 1, 2, 3, 4"),
        ({"remove": 1, "successor": 9}, "node 9 is not registered"),
        ({"successor": 4}, "successor: name the node that it replaces, too"),
        ({"remove": 1, "successor": 1}, "node 1 cannot replace itself"),
    ],
)
async def test_a_plan_for_what_cannot_be_is_refused(args: dict[str, Any], told: str) -> None:
    with pytest.raises(AdminRequestFailed, match=told):
        await with_new_node().admin("cluster.balance", **args)


@pytest.mark.parametrize("value", ["fast", True, 1.5, 1 << 63, -(1 << 70)])
async def test_a_setting_that_is_no_number_is_the_callers_fault(value: Any) -> None:
    cluster = SeenCluster()
    with pytest.raises(AdminRequestFailed, match="pace_bytes_per_s: must be a whole number, not ") as refused:
        await cluster.admin("cluster.settings", pace_bytes_per_s=value)
    assert refused.value.code == "invalid-argument"
    assert cluster.commands == []


async def test_settings_are_shown_and_changed() -> None:
    cluster = SeenCluster()
    assert (await cluster.admin("cluster.settings"))["balance"] == "repair"
    assert cluster.commands == []
    now = await cluster.admin("cluster.settings", balance="on", replace_after_s=20)
    assert (now["balance"], now["replace_after_s"], now["disk_high"]) == ("on", 20, 85)
    with pytest.raises(AdminRequestFailed, match="disk_high 101"):
        await cluster.admin("cluster.settings", disk_high=101)


async def test_before_version_15_is_active_nothing_is_planned_and_nothing_changed() -> None:
    cluster = SeenCluster(version=14)
    for operation, args in (("cluster.balance", {}), ("cluster.settings", {"balance": "on"})):
        with pytest.raises(AdminRequestFailed, match=r"version 14 is active.*holdfast cluster finalize"):
            await cluster.admin(operation, **args)
    assert (await cluster.admin("cluster.settings"))["balance"] == "repair"
    assert cluster.asked == []


async def test_a_plan_that_does_nothing_is_applied_by_doing_nothing() -> None:
    cluster = SeenCluster(nodes=3)
    shown = await cluster.admin("cluster.balance")
    assert shown["moves"] == []
    assert await cluster.balancer.apply(cluster.balancer._kept[shown["digest"]][0]) == Ok()
    assert cluster.commands == []
