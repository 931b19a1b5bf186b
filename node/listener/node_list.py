"""The address `$nodes`: where the cluster's other nodes are, for clients that outlive those that their programs named.

Problem: a node's open tells of the others, and a client that sleeps opens no connection. When it wakes, all that it has
heard of may have been replaced.
Rules never broken: the first message tells of the nodes at once, each further one of a change, and the latest state
only; one message for each credit. A change of leaders sends nothing.
"""

from __future__ import annotations

from math import inf
from typing import Any

from holdfast import protocol
from holdfast.amqp import Credit, Message, SenderLink, Source, Value, encode_message, uint
from node.listener.attach.link_plan import LinkPlan
from node.listener.broker_interface import AmqpAddress, Broker
from node.listener.endpoint import Endpoint, EndpointHost

ADDRESS_BYTES = 12
"""Bytes of one address beside its texts."""


def told_nodes(broker: Broker, most_bytes: float = inf) -> list[list[Any]]:
    """Addresses of the other nodes as they are told, in `most_bytes` at most."""
    told: list[list[Any]] = []
    for where in broker.other_nodes():
        hostname = "" if where.hostname == where.host else where.hostname
        most_bytes -= len(where.host.encode()) + len(hostname.encode()) + ADDRESS_BYTES
        if most_bytes < 0 or len(told) == protocol.TOLD_NODES:
            break
        told.append([where.host, uint(where.port), hostname])
    return told


class NodeList(Endpoint):
    link: SenderLink

    def __init__(self, host: EndpointHost, link: SenderLink, plan: LinkPlan) -> None:
        super().__init__(host, link, plan)
        self._told: tuple[AmqpAddress, ...] | None = None

    def open(self) -> None:
        self.link.accept(source=Source(address=self.plan.address, distribution_mode="copy"))

    def on_credit(self, event: Credit) -> None:
        self.host.pump_soon(self)

    def on_change(self) -> None:
        if self.plan.broker.other_nodes() != self._told:
            self.host.pump_soon(self)

    def pump(self) -> bool:
        nodes = self.plan.broker.other_nodes()
        if nodes != self._told and self.link.credit > 0 and not self.leaving:
            self._told = nodes
            message = encode_message(Message(body=Value(told_nodes(self.plan.broker))))
            self.link.send_many([message])
            self.host.delivered(0, len(message))
        if self.link.drain:
            self.link.drained()
        return False
