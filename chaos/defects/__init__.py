"""Nodes with a deliberate fault: a net that does not notice them has holes.

Problem: that a hundred runs found nothing says as much of the checkers as of the cluster. So the cluster is broken
on purpose, one rule at a time, and the checker that should notice has to.
Rule never broken: the product knows nothing of it. A defective node is another program, `python -m chaos.defects NAME
--config FILE`, which replaces some function of the node before it starts it; no setting and no variable of a node can
do that, and a node that is started as nodes are pays nothing for it.
Rejected: switches in the node's code. Each would be a line that can be wrong in production.
"""
