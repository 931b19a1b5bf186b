"""AMQP link endpoints of a node. `Listener(broker, config)` is all that the node needs; `Broker` is what it gives."""

from node.listener.broker import AdminError, AmqpAddress, Broker, ListenerConfig, LogView
from node.listener.listener import Counters, Listener

__all__ = ["AdminError", "AmqpAddress", "Broker", "Counters", "Listener", "ListenerConfig", "LogView"]
