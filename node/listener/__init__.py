"""AMQP link endpoints of a node. `Listener(broker, config)` is all that the node needs; `Broker` is what it gives."""

from node.admin.errors import AdminRequestFailed
from node.listener.broker_interface import AmqpAddress, Broker
from node.listener.config import ListenerConfig
from node.listener.counters import Counters
from node.listener.listener import Listener
from node.partition.api import LogView

__all__ = ["AdminRequestFailed", "AmqpAddress", "Broker", "Counters", "Listener", "ListenerConfig", "LogView"]
