"""Link redirect: which peers follow one, and the error that sends a link to the partition's leader.

A redirect is sent only for a partition-bound link, only to an address meant for the clients of this listener, and only
if the peer follows redirects. Every other link is served here, through the gateway.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from holdfast import protocol
from holdfast.amqp import uint
from holdfast.amqp.errors import LINK_REDIRECT, Error
from node.listener.attach.link_plan import LinkPlan
from node.listener.broker_interface import Broker
from node.listener.config import RedirectPolicy
from node.listener.errors import Refused


def may_redirect(policy: RedirectPolicy, desired_capabilities: Collection[str]) -> bool:
    """Tell whether a peer with these capabilities is redirected when another node serves one of its links better."""
    if policy != "auto":
        return policy == "always"
    return protocol.LINK_REDIRECT_CAPABILITY in desired_capabilities or follows_streams(desired_capabilities)


def follows_streams(desired_capabilities: Collection[str]) -> bool:
    """Tell whether the peer knows the extension, and so that links may be closed to move them (ES-18)."""
    return protocol.EVENT_STREAMS_CAPABILITY in desired_capabilities


def redirect_error(broker: Broker, node: int | None, address: str) -> Error | None:
    """The redirect of a link to another node; None when that node has told no address for this listener's clients."""
    where = None if node is None else broker.address_of(node)
    if where is None:
        return None
    info: Mapping[str, Any] = {
        "hostname": where.hostname,
        "network-host": where.host,
        "port": uint(where.port),
        "address": address,
    }
    return Error(LINK_REDIRECT, f"node {node} leads the partition; attach to {address!r} there", info)


def redirect_away(plan: LinkPlan, partition: str, *, follows: bool) -> None:
    """Raise Refused with the redirect if another node leads the partition. `follows`: the peer follows redirects."""
    broker = plan.broker
    leader = broker.leader(plan.log, partition)
    if not follows or leader is None or leader == broker.node_id or broker.is_local(plan.log, partition):
        return
    error = redirect_error(broker, leader, plan.address)
    if error is not None:  # a leader without an address for this listener's clients is served through the gateway
        raise Refused(error)
