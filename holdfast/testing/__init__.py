"""A real cluster for the tests of an application.

    from holdfast.testing import Cluster

    with Cluster() as cluster:
        log = cluster.create_log()
        program_under_test(cluster.address, log)

With pytest the fixtures `holdfast_cluster` and `holdfast_log` do the same (`holdfast/pytest_plugin.py`).
"""

from holdfast.testing.cluster import Cluster, ClusterError

__all__ = ["Cluster", "ClusterError"]
