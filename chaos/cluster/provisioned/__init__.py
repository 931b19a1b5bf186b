"""A cluster that Ansible has made, on hosts of its own, as something that a run can hurt.

Problem: whoever breaks things on hosts that are not his machine may lose them in the middle of it, and what is broken
then stays so, on nodes that others use.
Rules never broken:
 - who undoes a thing is on the host where it is done (`on_host`): when the connection ends, or is silent, or a bound is
   reached, the node runs again, without anybody telling it to;
 - nothing is done before every host was reached, with the rights that are needed, and every node serves;
 - what the hosts are is Ansible's to say (`ansible-inventory`); what their nodes are, and where, the nodes' own
   configuration says, as it lies there;
 - nothing stays on a host: no file, no process.
Rejected: Ansible for each fault. A play takes seconds; a pause of one second cannot be made of that.
"""
