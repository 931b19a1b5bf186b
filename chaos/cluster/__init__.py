"""A cluster under test: node processes, with a proxy on every path between them and to them.

Network faults have a direction: A may no longer hear B while B still hears A. And every connection must go through its
proxy: after one redirect to a true address the run proves nothing.

Rules:
 - every ordered pair of nodes, and every class of clients with every node, has a way of its own; one table
   (`links.Links`) maps a directed link to directions of proxies;
 - a client of a class gets only addresses of the ways of that class; the nodes' address maps ensure that;
 - calls that judge (administration, the drain at the end) must not be disturbed, so they bypass the proxies;
 - we signal a node through the handle of the process that we started; it dies with us.

Rejected: packet filters in network namespaces. They need root, and do not break a connection that stays open.
"""
