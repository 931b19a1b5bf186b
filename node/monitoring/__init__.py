"""Monitoring of a node for operators: metrics, health, and the draining of its leaderships.

`http_server` serves `/metrics`, `/health/live` and `/health/ready`. `metrics` reads numbers off the node's parts when
it is asked and never in between. `health` says what is wrong. `node.admin.draining` empties a node before it stops.
"""

from node.admin.draining import Drain
from node.monitoring.event_loop_lag import LoopWatch
from node.monitoring.health import Health, HealthCheck, StartupState
from node.monitoring.http_server import MonitoringServer
from node.monitoring.metrics import Metrics
from node.monitoring.node_parts import NodeParts

__all__ = ["Drain", "Health", "HealthCheck", "LoopWatch", "Metrics", "MonitoringServer", "NodeParts", "StartupState"]
