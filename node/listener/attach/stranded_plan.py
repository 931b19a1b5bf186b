"""Whether what a link needs, or an attach asks for, is out of the reach of a node that is cut off."""

from __future__ import annotations

from node.listener.attach.link_plan import Kind, Plan


def is_stranded(plan: Plan) -> bool:
    """A link to all partitions of a log is, when each of them is."""
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
    except KeyError:  # the log is gone, and that is told otherwise
        return False
