"""The test whether a link or an attach needs something that a cut-off node cannot reach."""

from __future__ import annotations

from node.listener.attach.link_plan import Kind, LinkPlan


def is_stranded(plan: LinkPlan) -> bool:
    """Tell whether a cut-off node cannot reach what the plan needs; of a link to all partitions: none of them."""
    broker = plan.broker
    if not broker.is_cut_off:
        return False
    if plan.kind is Kind.COORDINATOR:
        return broker.is_coordinator_stranded(None)
    try:
        if plan.partition is not None:
            return broker.is_stranded(plan.log, plan.partition)
        view = broker.describe(plan.log)
        return view is not None and all(broker.is_stranded(plan.log, partition) for partition in view.partitions)
    except KeyError:  # the log is gone: the link learns that elsewhere
        return False
