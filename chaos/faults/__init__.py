"""What goes wrong, as objects: drawn by a seed, composable, and over when they are over.

Problem: a fault that outlives its test spoils the next one, one that cannot be repeated teaches nothing, and constant
faults hide what goes wrong in recovering from them.
Rules never broken:
 - a fault is a `with` block: leaving it heals, whatever happened inside; the cluster then heals what a fault that broke
   half-way has left (`ProxiedCluster.heal`);
 - everything random is drawn from the seed of the run, before it begins where that can be (`schedule.draw`). Whom
   "the leader" means is the cluster's doing: it is told in the history;
 - a quarter of the periods has no fault.
Rejected: faults that run for themselves in the background, each with its own clock: two of them compose by accident.
"""
