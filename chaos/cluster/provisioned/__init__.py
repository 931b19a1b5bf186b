"""A cluster that Ansible has made on remote hosts, as the target of a run.

A run can lose the connection to a host in the middle of a fault. Then the fault would stay, on nodes that others use.

Rules:
 - the program that undoes a fault is on the host of the fault (`on_host`). When the connection ends or is silent, or a
   bound is reached, it lets the node run again without an order;
 - no fault begins before every host was reached with the needed rights, and every node serves;
 - Ansible tells the hosts (`ansible-inventory`); the nodes' own configuration on the hosts tells about the nodes;
 - nothing stays on a host: no file, no process.

Rejected: a play of Ansible for each fault. A play takes seconds, too long for a pause of one second.
"""
