"""Nodes with a deliberate fault, which the checkers must notice.

If a hundred runs find nothing, either the cluster or the checkers may be the reason. So we break the cluster on
purpose, one rule at a time, and the right checker has to notice.

The product knows nothing of this. A defective node is another program, `python -m chaos.defects NAME --config FILE`,
which replaces some function of the node and then starts it. No setting or variable of a normal node can do that, and a
normal node pays nothing for it.

Rejected: switches in the node's code. Each would be a line that can be wrong in production.
"""
