"""Faults as objects: drawn by a seed, composable, and undone at their end.

A fault that outlives its test spoils the next test. A fault that cannot be repeated teaches nothing. And constant
faults hide bugs of recovery.

Rules:
 - a fault is a `with` block: leaving it heals, whatever happened inside. The cluster then heals what a fault that
   failed half-way has left (`ProxiedCluster.heal`);
 - everything random is drawn from the seed of the run, if possible before the run (`schedule.draw`). Which node is "the
   leader" depends on the cluster; the history tells it;
 - a quarter of the periods has no fault.

Rejected: faults that run in the background, each with its own clock. Two of them would overlap only by accident.
"""
