"""Real clusters for the tests of programs that use Kafka: `LocalCluster`, and a pytest plugin around it.

`launching` starts `ottla up` as any user would, `processes` says how, `nodes` are its processes, `local_cluster` is
what tests see of them, and `pytest_plugin` has the fixtures. One rule: importing any of it loads no client and no
broker.
"""

from .failures import LocalClusterError
from .local_cluster import LocalCluster

__all__ = ["LocalCluster", "LocalClusterError"]
