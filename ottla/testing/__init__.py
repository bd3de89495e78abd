"""Real clusters for the tests of programs that use Kafka: `LocalCluster`, and a pytest plugin around it.

`launching` starts `ottla up` as any user would, and `processes` starts commands. `nodes` are the cluster's processes,
`local_cluster` is the interface for tests, and `pytest_plugin` has the fixtures. One rule: importing any of these
modules loads no client and no broker.
"""

from .failures import LocalClusterError
from .local_cluster import LocalCluster

__all__ = ["LocalCluster", "LocalClusterError"]
