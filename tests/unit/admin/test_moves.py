"""Administration of moves: refused before its version is active, and shown as leaders tell of them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cluster.features import Features
from cluster.metadata import (
    MetadataMachine,
    MetadataView,
    NotConfirmed,
    alter_log,
    create_log,
    encode_command,
    finish_move,
    reassign,
    register_node,
    set_rack,
    stall_move,
)
from cluster.metadata.moves import MAX_MOVES
from cluster.metadata.planning import BalanceInput, NodeLoad, PartitionLoad
from cluster.rpc import ReplicaState
from node.admin.errors import AdminRequestFailed
from node.admin.moves import MAX_DESCRIBED, MoveAdministration
from tests.simulation.world.disk import SimBatch


class Asked:
    """A node that administers moves; its peers answer what the test says."""

    def __init__(self, version: int = 15) -> None:
        self.machine, self.index = MetadataMachine(), 1
        self.view = MetadataView(self.machine)
        for node in range(1, 5):
            self.do(register_node(node, f"h:{node}", {}))
        self.do(create_log("a", now_ms=1, partitions=2, replicas=3))
        self.leaders: dict[int, int] = {1: 1, 2: 2}
        self.states: dict[int, list[ReplicaState] | None] = {node: [] for node in range(1, 5)}
        self.asked_of: set[int] = set()
        self.is_current = True
        self.away: set[int] = set()
        self.load_was_asked = 0
        self.moves = MoveAdministration(
            cast(Any, self), self.view, self.leaders.get, self.ask, self.ask_load, Features(heard=version)
        )

    def do(self, command: Any) -> Any:
        self.index += 1
        return self.machine.apply(self.index, 1, encode_command(command), SimBatch())

    async def execute(self, command: Any) -> Any:
        return self.do(command)

    async def current(self) -> None:
        if not self.is_current:
            raise NotConfirmed("no majority")

    async def ask(self, nodes: Any, groups: Any) -> Any:
        self.asked_of |= set(groups)
        told = {node: self.states[node] for node in nodes}
        return {
            node: None if states is None else {one.group: one for one in states if not groups or one.group in groups}
            for node, states in told.items()
        }

    async def ask_load(self) -> BalanceInput:
        self.load_was_asked += 1
        nodes = (NodeLoad(one.node, one.rack, away_s=float(one.node in self.away)) for one in self.view.nodes.values())
        partitions = (
            PartitionLoad(one.group, one.name, one.replicas)
            for log in self.view.logs.values()
            for one in log.partitions
        )
        return BalanceInput(tuple(nodes), tuple(partitions))

    async def reassign(self, partition: int, to: Any, **more: Any) -> Any:
        return await self.moves.reassign({"name": "a", "partition": partition, "to": to, **more})


async def _refused(work: Any) -> str:
    with pytest.raises(AdminRequestFailed) as error:
        await work
    return f"{error.value.code}: {error.value}"


async def test_nothing_moves_before_its_version_is_active() -> None:
    asked = Asked(version=14)
    for work in (asked.reassign(0, "1,2,4"), asked.moves.moves({}), asked.moves.cancel({})):
        assert "not-allowed: replicas move between nodes from version 15 on" in await _refused(work)


async def test_what_may_be_old_is_not_told_and_what_is_wrong_is_named() -> None:
    asked = Asked()
    assert "not-found: partition 7 does not exist: log a has 0 to 1" in await _refused(asked.reassign(7, "1,2,4"))
    assert "invalid-argument: to: must name nodes by their numbers" in await _refused(asked.reassign(0, "1,,4"))
    assert "not-found: there is no log 'b'" in await _refused(asked.moves.cancel({"name": "b"}))
    asked.is_current = False
    assert "unavailable: what this node knows may be old" in await _refused(asked.moves.moves({}))


async def test_a_move_is_shown_as_its_leader_tells_it() -> None:
    asked = Asked()
    answer = await asked.reassign(0, "4,1,2")
    assert (answer["log"], answer["partition"], answer["target"]) == ("a", "0", [4, 1, 2])
    [move] = (await asked.moves.moves({}))["moves"]
    assert (move["state"], move["waits_for"]) == ("wished", "the leader of the partition has not begun yet")
    asked.states[1] = [
        ReplicaState(
            group=1, votes=True, move_state="copying", move_waits_for="it", move_entries=9, move_entries_left=3
        )
    ]
    [move] = (await asked.moves.moves({}))["moves"]
    assert (move["add"], move["state"], move["waits_for"]) == (4, "copying", "it")
    assert (move["entries"], move["entries_left"]) == (9, 3)
    told = asked.states[1]
    assert told is not None
    told[0].move_stalled = True
    assert (await asked.moves.moves({}))["moves"][0]["state"] == "stalled"
    del asked.leaders[1]
    [move] = (await asked.moves.moves({}))["moves"]
    assert (move["state"], move["waits_for"]) == ("no leader", "a majority of nodes 1, 2, 3 must be up")


async def test_leaders_are_asked_of_what_is_under_way_and_not_of_what_waits() -> None:
    asked = Asked()
    asked.do(create_log("b", now_ms=1, partitions=100, replicas=1))
    asked.do(reassign([(one.group, 0, (one.replicas[0] % 4 + 1,)) for one in asked.view.logs["b"].partitions]))
    asked.leaders.update({one.group: 1 for one in asked.view.logs["b"].partitions})
    shown = (await asked.moves.moves({}))["moves"]
    assert len(shown) == 100
    assert asked.asked_of == {one["group"] for one in shown if one["state"] != "queued"}
    assert 1 <= len(asked.asked_of) <= MAX_MOVES


async def test_replicas_share_no_rack_while_a_node_of_another_one_is_free() -> None:
    asked = Asked()
    for node, rack in ((1, "a"), (2, "b"), (3, "c"), (4, "a")):
        asked.do(set_rack(node, rack))
    asked.do(create_log("b", now_ms=1, partitions=1, replicas=2))
    before = asked.view.logs["b"].partitions[0]
    both = {"name": "b", "partition": 0, "to": "4,1"}
    assert await _refused(asked.moves.reassign(both)) == (
        "not-allowed: not-allowed: b/0: nodes 4, 1 stand in rack a, and other nodes are free: 2 (rack b), 3 (rack c); "
        "name one of these instead, or allow it (`--allow-same-rack`)"
    )
    assert asked.view.logs["b"].partitions[0] == before
    asked.away = {2, 3}
    assert (await asked.moves.reassign(both))["target"] == [4, 1], "the other racks are down"
    asked.away = set()
    assert (await asked.moves.reassign({**both, "to": "1,4", "allow_same_rack": True}))["target"] == [1, 4]


async def test_nobody_is_asked_where_no_rack_is_shared_or_the_target_is_wrong() -> None:
    asked = Asked()
    await asked.reassign(0, "4,1,2")
    for node in (1, 2):
        asked.do(set_rack(node, "a"))
    await asked.reassign(1, "2,3,4")
    assert "not-found: a/1: node 9 is not registered" in await _refused(asked.reassign(1, "1,2,9"))
    assert asked.load_was_asked == 0


async def test_a_cancel_names_what_it_asked() -> None:
    asked = Asked()
    for record in asked.view.logs["a"].partitions:
        coming = next(node for node in range(1, 5) if node not in record.replicas)
        await asked.reassign(int(record.name), ",".join(map(str, (coming, *record.replicas[:2]))))
    assert [one["partition"] for one in (await asked.moves.cancel({"name": "a", "partition": 1}))["asked"]] == ["1"]
    assert [one["partition"] for one in (await asked.moves.cancel({}))["asked"]] == ["0", "1"]
    assert all(record.move is None or record.move.cancel_asked for _, record in asked.view.moving())


async def test_what_a_cancel_has_left_is_named_with_what_to_type() -> None:
    asked = Asked()
    asked.do(alter_log("a", replicas=4))
    await asked.moves.cancel({})
    for record in list(asked.view.under_way()):
        asked.do(finish_move(record.group, 1, record.configuration_version + 2, record.settled))
    told = (await asked.moves.moves({}))["unsettled"]
    assert told[0].startswith("a/0 has 3 of 4 replicas, and none is on its way: `holdfast log alter a --replicas 4`")


async def test_what_is_not_in_order_is_named_besides_moves() -> None:
    asked = Asked()
    assert (await asked.moves.moves({}))["unsettled"] == []
    asked.states[4] = None
    asked.states[2] = [ReplicaState(group=1, votes=False)]
    del asked.leaders[2]
    unsettled = (await asked.moves.moves({}))["unsettled"]
    assert "node 4 does not answer" in unsettled
    assert "the replica of a/0 on node 2 is not complete" in unsettled
    assert "a/1 has no leader" in unsettled


async def test_moves_are_counted_without_asking_anybody() -> None:
    asked = Asked()
    asked.do(create_log("b", now_ms=1, partitions=100, replicas=1))
    asked.do(reassign([(one.group, 0, (one.replicas[0] % 4 + 1,)) for one in asked.view.logs["b"].partitions]))
    asked.states = {}
    counted = await asked.moves.moves({"limit": 0})
    under_way = counted["under_way"]
    assert counted == {"moving": 100, "under_way": under_way, "stalled": 0, "moves": [], "unsettled": []}
    assert 1 <= under_way <= MAX_MOVES
    first = next(asked.view.under_way())
    assert first.move is not None
    asked.do(stall_move(first.group, first.move.id))
    counted = await asked.moves.moves({"limit": 0})
    assert (counted["moving"], counted["stalled"]) == (100, 1)


async def test_an_answer_is_bounded_and_begins_with_what_is_under_way() -> None:
    asked = Asked()
    for log, partitions in (("b", MAX_DESCRIBED), ("c", 50)):
        asked.do(create_log(log, now_ms=1, partitions=partitions, replicas=1))
        asked.do(reassign([(one.group, 0, (one.replicas[0] % 4 + 1,)) for one in asked.view.logs[log].partitions]))
    answer = await asked.moves.moves({})
    assert (answer["moving"], len(answer["moves"])) == (MAX_DESCRIBED + 50, MAX_DESCRIBED)
    assert len(answer["unsettled"]) == MAX_DESCRIBED, "none of these partitions has a leader"
    states = [one["state"] for one in answer["moves"]]
    assert "queued" not in states[: answer["under_way"]]
    assert len((await asked.moves.moves({"limit": 3}))["moves"]) == 3
    assert "invalid-argument: limit" in await _refused(asked.moves.moves({"limit": -1}))
