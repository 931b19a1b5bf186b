"""A coordinator's leader that stood still while another one was elected, and is asked before it hears of that.

Random schedules hit this too seldom: the question has to arrive in the moment between its going on and its first look
at what it has missed.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from node.transaction_coordinator.coordinator_commands import AddPartitions, Register, Registered
from node.transaction_coordinator.coordinator_queries import AskOutcome, TransactionOutcome
from tests.simulation.mutations.holes_transactions import outcomes_are_not_confirmed
from tests.simulation.runner import quiet
from tests.simulation.schedule import Schedule
from tests.simulation.transactions import plans
from tests.simulation.transactions.load import TransactionalLoad
from tests.simulation.transactions.node import TransactionalNode

STANDSTILL_S = 5.0
ID = "one of its own"


def _three(plan: Any) -> Any:
    return plans.undisturbed(plan).varied(nodes=3)


class Story:
    """On a schedule without faults and writers, step by step."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        load: Any = self.schedule.load
        load.writers.names.clear()
        for node in self.schedule.nodes.values():
            node.start()
        load.start()
        self._until(lambda: len(load._coordinators) > 0)
        self.group: int = load._coordinators[0].group_id
        self._until(lambda: bool(self._leaders()))

    def _until(self, condition: Any) -> None:
        assert self.schedule._run_until(self.schedule.now + 20.0, condition)

    def _leaders(self, other_than: Any = None) -> list[Any]:
        nodes = [node for node in self.schedule.nodes.values() if node is not other_than]
        found = [(node, node.replicas.replica(self.group)) for node in nodes]
        return [node for node, replica in found if replica is not None and replica.is_leader]

    def ask(self, node: Any, question: Any) -> Any:
        with node.own_life.entered():
            task = self.schedule.loop.create_task(node.replicas.replica(self.group).ask(question))
        self._until(task.done)
        return task.result()

    def tell(self) -> Any:
        """What the one that stood still says of a transaction that began meanwhile."""
        (deposed,) = self._leaders()
        deposed.pause(STANDSTILL_S)
        self._until(lambda: bool(self._leaders(other_than=deposed)))
        (leader,) = self._leaders(other_than=deposed)
        registered = self.ask(leader, Register(ID, "holder", 60_000))
        assert isinstance(registered, Registered)
        pair = (registered.producer_id, registered.epoch)
        self.ask(leader, AddPartitions(ID, *pair, [1]))
        assert self._leaders() != [leader], "the other one does not know yet"
        return self.ask(deposed, AskOutcome(*pair))


@pytest.mark.parametrize("confirms", [True, False])
def test_who_was_deposed_tells_no_outcome(confirms: bool) -> None:
    """And would, without asking a majority first."""
    schedule = Schedule(1, TransactionalNode, TransactionalLoad, plan=_three)
    mutation = contextlib.nullcontext() if confirms else outcomes_are_not_confirmed()
    with quiet(), mutation, plans.around(schedule, crash_points=()), schedule.loop.running():
        answer = Story(schedule).tell()
    said_aborted = isinstance(answer, TransactionOutcome) and answer.committed is False
    assert said_aborted != confirms, answer
