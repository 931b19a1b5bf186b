"""What nodes ask each other's leaders, in place of gRPC: questions and answers travel each on their own.

Any of them may be lost, be late by seconds, overtake others, or arrive twice, also at a node that was started again
meanwhile; who asked waits for a while, and then does not know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.records.record_batch import RecordBatch
from node import peer_codec
from node.partition.api import Appended, AppendOutcome, Begins, Failed
from tests.simulation.world.rpc.calls import SimNetwork, SimPeerClient, SimWire

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule
    from tests.simulation.transactions.node import Missing, TransactionalNode

ANSWER_WITHIN_S = 1.0
LOST, DOUBLED, LATE = 0.03, 0.06, 0.06
"""Shares of what is on its way, while there are faults."""
LATE_BY_S = 0.7
"""In the mean: so that what belongs to one transaction arrives in the middle of the next."""


class Questions:
    """The paths between the nodes of a schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    async def ask(self, caller: TransactionalNode, called: int, group: int, question: Any) -> Any:
        data = peer_codec.encode_question(question)

        async def served(node: TransactionalNode) -> Any:
            replica = node.replicas.replica(group)
            if replica is None:
                return Failed("not_leader", True, f"node {node.id} has no replica of group {group}")
            answer = await replica.ask(peer_codec.decode_question(data))
            return answer if isinstance(answer, Failed) else peer_codec.encode_answer(answer)

        answer = await self._exchange(caller, called, type(question).__name__, question, served)
        return peer_codec.decode_answer(answer) if isinstance(answer, bytes) else answer

    async def append(
        self, caller: TransactionalNode, called: int, group: int, batch: RecordBatch, begins: Begins | None
    ) -> AppendOutcome:
        async def served(node: TransactionalNode) -> Any:
            replica = node.partition(group)
            if replica is None:
                return Failed("not_leader", True, f"node {node.id} has no replica of group {group}")
            outcome: asyncio.Future[AppendOutcome] = asyncio.get_running_loop().create_future()
            replica.append(batch, lambda given: None if outcome.done() else outcome.set_result(given), begins)
            return await outcome

        answer = await self._exchange(caller, called, "append", (batch.head, begins), served)
        assert isinstance(answer, Appended | Failed)
        return answer

    async def _exchange(
        self, caller: TransactionalNode, called: int, kind: str, about: Any, served: Callable[[Any], Any]
    ) -> Any:
        if called != caller.id and not self._schedule.links[caller.id, called].is_up:
            return Failed("not_leader", True, f"node {called} is not connected")
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def arrive(answer: Any) -> None:
            if not answered.done():
                answered.set_result(answer)

        async def serve(node: TransactionalNode) -> None:
            answer = await served(node)
            self._carry(called, caller.id, lambda _: arrive(answer))

        asked = partial(self._arrive, caller.id, called, partial(_begin, serve))
        if not self._schedule.delays.takes(kind, about, asked):
            self._carry(caller.id, called, partial(_begin, serve))
        await asyncio.wait([answered], timeout=ANSWER_WITHIN_S)
        if answered.done():
            return answered.result()
        return Failed("unknown", True, f"node {called} did not answer")

    def _carry(self, sender: int, receiver: int, action: Callable[[Any], None]) -> None:
        schedule = self._schedule
        chance = schedule.randomness
        faulty = schedule.chaos_begun and not schedule.chaos_over
        for _ in range(2 if faulty and chance.random() < DOUBLED else 1):
            if faulty and chance.random() < LOST:
                schedule.count("lost question or answer")
                continue
            delay_s = chance.uniform(0.0002, schedule.latency_s)
            if faulty and chance.random() < LATE:
                delay_s += chance.expovariate(1 / LATE_BY_S)
            schedule.at(schedule.now + delay_s, partial(self._arrive, sender, receiver, action))

    def _arrive(self, sender: int, receiver: int, action: Callable[[Any], None]) -> None:
        schedule, node = self._schedule, self._schedule.nodes[receiver]
        if not node.is_running or (sender != receiver and schedule.links[sender, receiver].is_cut):
            return
        if schedule.now < node._paused_until:
            schedule.at(node._paused_until, partial(self._arrive, sender, receiver, action))
            return
        with node.own_life.entered():
            action(node)


def _begin(serve: Callable[[Any], Any], node: TransactionalNode) -> None:
    asyncio.get_running_loop().create_task(serve(node), name=f"node {node.id} serves a question")


class _Client(SimPeerClient):
    """Appends and reads of gateways are calls on the wire, as in every schedule with gateways."""

    def __init__(self, questions: Questions, wire: SimWire, caller: TransactionalNode, called: int) -> None:
        super().__init__(wire, caller, called)
        self._questions, self._caller, self._called = questions, caller, called

    async def ask(self, group: int, question: Any) -> Any:
        return await self._questions.ask(self._caller, self._called, group, question)


class QuestionNetwork(SimNetwork):
    """The part of `cluster.rpc.PeerNetwork` that `node.leader_calls`, gateways and `NodeSightings` use."""

    def __init__(self, questions: Questions, node: TransactionalNode, missing: Missing) -> None:
        super().__init__(node.schedule.wire or SimWire(node.schedule), node)
        self._questions, self._missing = questions, missing

    def _new_client(self, peer: int) -> SimPeerClient:
        caller: Any = self._node
        return _Client(self._questions, self._wire, caller, peer)

    def lost_s(self, peer: int) -> float:
        return self._missing.lost_s(peer)
