"""A cluster to do harm to: node processes, with a proxy on every way between them and to them.

Problem: faults of a network are faults of *directed* ways (A no longer hears B, and B hears A well), and a proxy that
anything can go round is no proxy: one redirect to a true address, and the run proves nothing.
Rules never broken:
 - every ordered pair of nodes, and every class of clients with every node, has a way of its own; one table
   (`links.Links`) says which bytes of which proxy a directed link is made of;
 - every address that is handed out to a client of a class is that of a way of the class: the nodes' address maps see to
   it;
 - what must not be disturbed, because it judges (administration, the drain at the end), goes past the proxies;
 - a node is signalled through the handle of the process that we started; it dies with us.
Rejected: cutting by packet filters in network namespaces. It takes root, and breaks no connection that stays open.
"""
