"""The planner: its goals in order, and what an operator may ask of it.

The rules: a plan names no group that has a target, a move or no leader; it is the same for the same load; carried out,
it leaves nothing to plan. A node is lost only while most others are there. Evenness waits until every node is up or
lost, and has told how full it is: what is about to come back needs no place.
"""

from __future__ import annotations

from dataclasses import replace

from cluster.metadata.planning.balance_input import REPORT_LIMIT_S, BalanceInput
from cluster.metadata.planning.disks import relieve_disks
from cluster.metadata.planning.evenness import even_bytes, even_leaders, even_replicas
from cluster.metadata.planning.plan import BalancePlan
from cluster.metadata.planning.projection import Projection
from cluster.metadata.planning.racks import spread_over_racks
from cluster.metadata.planning.repair import empty, lost_nodes
from cluster.metadata.types import BalanceSettings

DEFAULTS = BalanceSettings()


def plan_balance(load: BalanceInput, settings: BalanceSettings = DEFAULTS) -> BalancePlan:
    """Plan all goals that the settings allow."""
    if settings.balance == "off":
        return BalancePlan()
    projection = Projection(load, settings)
    lost = lost_nodes(projection)
    leaving = [node for node, told in projection.nodes.items() if told.leaving]
    reasons = {**{node: f"node {node} is away" for node in lost}, **{node: f"node {node} leaves" for node in leaving}}
    if reasons:
        empty(projection, reasons)
    if settings.balance == "on":
        relieve_disks(projection)
        if not _waits(projection, lost):
            spread_over_racks(projection)
            even_replicas(projection)
            even_bytes(projection)
            even_leaders(projection)
    return projection.plan()


def _waits(projection: Projection, lost: list[int]) -> bool:
    """Tell whether a node is away, or has not told how full it is, and note for which the plan waits."""
    waited = False
    for node, told in projection.nodes.items():
        if told.leaving or node in lost:
            continue
        if told.away_s:
            projection.obstacle(f"waits for node {node}, which is away: start it, or `holdfast node remove {node}`")
        elif told.report_age_s > REPORT_LIMIT_S:
            projection.obstacle(f"waits for node {node}'s report")
        waited = waited or told.away_s > 0 or told.report_age_s > REPORT_LIMIT_S
    return waited


def plan_removal(load: BalanceInput, node: int, settings: BalanceSettings = DEFAULTS) -> BalancePlan:
    """Plan where the replicas of a node go that is to be removed."""
    projection = Projection(_leaving(load, node), settings)
    empty(projection, {node: f"node {node} leaves"})
    return projection.plan()


def plan_replacement(
    load: BalanceInput, node: int, successor: int, settings: BalanceSettings = DEFAULTS
) -> BalancePlan:
    """Plan that another node takes all replicas of a node."""
    projection = Projection(_leaving(load, node), settings)
    empty(projection, {node: f"node {successor} replaces node {node}"}, [successor])
    return projection.plan()


def _leaving(load: BalanceInput, node: int) -> BalanceInput:
    return replace(load, nodes=tuple(replace(told, leaving=True) if told.node == node else told for told in load.nodes))
