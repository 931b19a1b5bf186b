"""The rights that a link or a request needs.

Problem: an attach names a log, and perhaps a group, a producer or a transactional id, too; through each of them one
client can end another's work.
Rules never broken: every name that an attach or a request carries is a resource of its own. The id that a partition
gave to a producer is none, or nobody could go on after a lost connection without a right to that very number. A peer is
told nothing about resources that it may not use: its right to the log is checked before whether the log exists. A
request that is in no table here is for administrators. Among these is the choice of the nodes that keep a partition,
as in Kafka: it is about everybody's disks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast import protocol
from holdfast.amqp import Link, ReceiverLink, SenderLink, Source, Target
from node.listener.attach.address_form import log_of
from node.listener.attach.link_plan import Kind, LinkPlan
from node.listener.event_hubs.addresses import HubAddress
from node.partition.idempotence.producer_state import was_given_out
from node.security.authorisation import Need

_SERVICES = frozenset({protocol.MANAGEMENT_ADDRESS, protocol.TOKEN_ADDRESS})


def first_need(link: Link, hub: HubAddress | None = None) -> Need | None:
    """The right on the log that a link is about; None: the link is about no log. `hub`: its address, if it is of Event
    Hubs."""
    if hub is not None:
        return Need("publish" if isinstance(link, ReceiverLink) else "consume", "log", hub.hub)
    if isinstance(link, ReceiverLink):
        target = link.remote_target
        if link.wants_coordinator or not isinstance(target, Target) or not target.address:
            return None
        return None if target.address in _SERVICES else need_to_publish(target.address)
    assert isinstance(link, SenderLink)
    source = link.remote_source
    if not isinstance(source, Source) or source.dynamic or not source.address:
        return None
    if source.address in _SERVICES or source.address == protocol.NODES_ADDRESS:
        return None
    if source.address.endswith(protocol.INFO_SUFFIX):
        return Need("describe", "log", source.address.removesuffix(protocol.INFO_SUFFIX))
    return Need("consume", "log", log_of(source.address))


def need_to_publish(address: str) -> Need:
    """The right on the log that messages to an address need."""
    return Need("publish", "log", log_of(address))


def needs(plan: LinkPlan) -> Iterator[Need]:
    """Yield every right that a served link needs."""
    if plan.kind is Kind.INGEST:
        yield Need("publish", "log", plan.log)
        producer_id = None if plan.producer is None else plan.producer.producer_id
        if producer_id is not None and not was_given_out(producer_id):
            yield Need("publish", "producer-group", str(producer_id))
    elif plan.kind is Kind.EGRESS:
        yield Need("consume", "log", plan.log)
        if plan.membership is not None and plan.membership.group is not None:
            yield Need("consume", "group", plan.membership.group)
        elif plan.hub is not None:
            yield Need("consume", "group", plan.hub.group)
    elif plan.kind is Kind.INFO:
        yield Need("describe", "log", plan.log)
    elif plan.kind is Kind.COORDINATOR:
        terms = plan.transactions
        assert terms is not None
        writer = terms.member.writer if terms.member is not None else None
        yield Need("transact", "transactional-id", writer if writer is not None else terms.transactional_id)


_CLUSTER, _LOOK = ("cluster", "cluster", ""), ("describe", "cluster", "")
_LOG, _ID = ("describe", "log", "name"), ("describe", "transactional-id", "name")
_TRANSACT = ("transact", "transactional-id", "name")

REQUESTS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "log.create": (("create", "log", "name"),),
    "log.list": (),
    "log.describe": (_LOG,),
    "log.alter": (("alter", "log", "name"),),
    "log.delete": (("delete", "log", "name"),),
    "log.dump": (("consume", "log", "name"),),
    "producer.list": (_LOG,),
    "producer.describe": (_LOG,),
    "group.list": (_LOG,),
    "group.describe": (_LOG, ("describe", "group", "group")),
    "group.commit": (("consume", "log", "name"), ("consume", "group", "group")),
    "group.reset": (("consume", "log", "name"), ("alter", "group", "group")),
    "group.delete": (("consume", "log", "name"), ("delete", "group", "group")),
    "transaction.list": (),
    "transaction.describe": (_ID,),
    "transaction.abort": (_TRANSACT,),
    "transaction.hanging": (_LOOK,),
    "transaction-group.open": (_TRANSACT,),
    "transaction-group.commit": (_TRANSACT,),
    "transaction-group.abort": (_TRANSACT,),
    "transaction-group.list": (),
    "transaction-group.describe": (_ID,),
    "node.list": (_LOOK,),
    "node.status": (_LOOK,),
    "node.describe": (_LOOK,),
    "cluster.status": (_LOOK,),
    "cluster.moves": (_LOOK,),
    "user.whoami": (),
}
"""Operation -> (operation, kind of resource, argument that names it). Operations not listed need `cluster cluster`."""

LISTED: Mapping[str, tuple[str, str, str]] = {
    "log.list": ("logs", "log", "name"),
    "group.list": ("groups", "group", "group"),
    "transaction.list": ("transactions", "transactional-id", "transactional_id"),
    "transaction-group.list": ("writers", "transactional-id", "writer"),
}
"""Operation -> (key of its list, kind, key of the name): the caller gets the entries that it may describe."""

OWN_PREFIX = "$"
"""Names of the cluster's own logs begin with it, and no client's."""

READS = frozenset({"list", "describe", "dump", "status", "hanging", "whoami", "moves"})
"""Verbs that change nothing, and are not audited."""


def needs_of_request(operation: str, arguments: Mapping[str, Any]) -> Iterator[Need]:
    for wanted, kind, argument in REQUESTS.get(operation, (_CLUSTER,)):
        name = str(arguments.get(argument) or "") if argument else ""
        if (wanted, kind) == ("alter", "log") and name.startswith(OWN_PREFIX):
            yield Need(*_CLUSTER)  # the cluster's own: a grant on all logs is for those of clients
        else:
            yield Need(wanted, kind, name)
