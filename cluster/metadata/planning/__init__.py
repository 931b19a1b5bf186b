"""Plans: which replicas should lie elsewhere, as pure functions on frozen values.

A plan is an ordered list of targets, one a group, and a digest over exactly that. It is replicated by few commands, and
the metadata's state machine carries it out. So what a dry run shows is what happens.
"""

from cluster.metadata.planning.balance_input import BalanceInput, NodeLoad, PartitionLoad
from cluster.metadata.planning.plan import BalancePlan, Reassignment
from cluster.metadata.planning.planner import plan_balance, plan_removal, plan_replacement
from cluster.metadata.planning.racks import SharedRack, shared_rack

__all__ = [
    "BalanceInput",
    "BalancePlan",
    "NodeLoad",
    "PartitionLoad",
    "Reassignment",
    "SharedRack",
    "plan_balance",
    "plan_removal",
    "plan_replacement",
    "shared_rack",
]
