"""The plan of a link: the service that an attach asks for, understood or refused, and the node to serve it.

Problem: one address space holds logs, their `$info`, `$nodes`, management and reply addresses, for links of both
directions, with or without a partition; and some of what a peer may ask for is not built. Every attach must get exactly
one defined answer.
Rule never broken: nothing is granted that will not be done. What is unknown is `not-found`, what is malformed is
`invalid-field`, what exists in the specification but not here is `not-implemented`; no such attach is served "as
well as possible".
Rejected: deciding inside the endpoints. The decision would then be spread over six files and untestable without a
socket.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from holdfast import protocol
from holdfast.amqp import Link, ReceiverLink, SenderLink, Source, Target
from holdfast.amqp.errors import INVALID_FIELD, NOT_ALLOWED, NOT_IMPLEMENTED, Error
from holdfast.records.record_batch import agreed_version
from node.listener import errors
from node.listener.amqp_transactions.coordinator_attach import CoordinatorTerms, coordinator_terms_of
from node.listener.attach.address_form import OF_SOURCE, OF_TARGET, AddressForm, read_form
from node.listener.broker_interface import Broker
from node.listener.errors import Refused
from node.listener.event_hubs import hub_plan
from node.listener.event_hubs.addresses import HubAddress
from node.listener.event_hubs.hub_plan import HubTerms
from node.listener.event_hubs.selectors import read_selector
from node.listener.incoming.idempotent_producers import producer_attach
from node.listener.log_identity import OneLog, another_cluster, told_log
from node.listener.outgoing.consumer_groups import group_attach
from node.listener.outgoing.consumer_groups.group_attach import GroupTerms
from node.listener.outgoing.source_filters import Selection, read_until, select
from node.partition.api import ProducerRequest


class Kind(Enum):
    INGEST = auto()  # the peer sends events
    EGRESS = auto()  # the peer receives events
    INFO = auto()  # the peer receives descriptions of a log
    NODES = auto()  # the peer receives addresses of the other nodes
    MANAGEMENT = auto()  # the peer sends requests
    REPLY = auto()  # the peer receives answers to requests
    COORDINATOR = auto()  # the peer declares and discharges transactions
    TOKENS = auto()  # the peer shows tokens
    ANONYMOUS = auto()  # the peer sends messages that say where they go
    UNSUBSCRIBE = auto()  # the peer looks for its durable source by name, to end it


NO_DYNAMIC_NODES = (
    "no node is made for a dynamic address, and no answers travel by one: create a log for answers, name it in "
    "reply-to, and tell them apart by correlation-id"
)


@dataclass(frozen=True, slots=True)
class LinkPlan:
    kind: Kind
    address: str
    broker: Broker  # the node, and of logs the one that the link is about
    log: str = ""
    partition: str | None = None  # None: agnostic (or not about events)
    selection: Selection | None = None  # EGRESS only
    until: int | None = None  # EGRESS only: the link ends when nothing below this offset is left for it
    publishers: bool = False  # EGRESS only: deliveries tell the event's publisher and number
    batches: bool = False  # EGRESS only: each delivery holds record batches
    dynamic: bool = False  # REPLY only: the node chooses the address
    producer: ProducerRequest | None = None  # INGEST only: the sender numbers its events
    membership: GroupTerms | None = None  # EGRESS only: it reads in a group's name, or keeps its position
    transactions: CoordinatorTerms | None = None  # COORDINATOR only
    assigned: bool = False  # the partition was chosen by the nodes, and served wherever the peer attached
    hub: HubTerms | None = None  # INGEST and EGRESS: the link speaks the dialect of Event Hubs
    key: str | None = None  # INGEST only: of events that have none

    @property
    def bound(self) -> bool:
        return self.partition is not None

    @property
    def is_guest(self) -> bool:
        """True for a receiver of Event Hubs without an epoch, which must find the partition unclaimed."""
        return self.hub is not None and self.kind is Kind.EGRESS and self.membership is None

    @property
    def needs_partition(self) -> bool:
        """True for a member of a group that leaves the choice of its partition to the nodes."""
        return self.membership is not None and self.membership.group is not None and self.partition is None


def plan(link: Link, broker: Broker, hub: HubAddress | None = None, *, may_browse: bool = True) -> LinkPlan:
    """The plan for a link that a peer has attached; raises Refused. `hub`: the address of a link of Event Hubs.
    `may_browse`: a receiver that copies, and names no start, begins at the earliest event (ES-8 forbids that to peers
    that know the extension)."""
    if hub is not None:
        return _plan_hub(link, broker, hub)
    if isinstance(link, ReceiverLink):
        return _plan_incoming(link, broker)
    assert isinstance(link, SenderLink)
    return _plan_outgoing(link, broker, may_browse)


def _plan_hub(link: Link, broker: Broker, hub: HubAddress) -> LinkPlan:
    stated = link.remote_address or hub.text
    one = OneLog(broker, hub.hub, hub_plan.find_hub(hub, broker))
    if isinstance(link, ReceiverLink):
        wish = producer_attach.producer_request_of(link)
        if wish is not None and hub.partition is None:
            raise Refused(errors.producer_needs_partition(one.name))
        return LinkPlan(Kind.INGEST, stated, one, one.name, hub.partition, producer=wish, hub=HubTerms())
    assert isinstance(link, SenderLink)
    source = link.remote_source
    terms = hub_plan.receiver_terms(link, hub)
    filters = source.filter if isinstance(source, Source) else None
    began = read_selector(filters)
    return LinkPlan(
        Kind.EGRESS, stated, one, one.name, hub.partition, select(filters) if began is None else began.selection,
        membership=hub_plan.epoch_terms(terms),
        hub=hub_plan.with_position(terms, None if began is None else began.supplied),
    )  # fmt: skip


def _plan_incoming(link: ReceiverLink, broker: Broker) -> LinkPlan:
    target = link.remote_target
    if link.wants_coordinator:
        if broker.transactions is None:
            raise _not_implemented("there are no transactions here; send without them")
        _same_cluster(link, broker)
        return LinkPlan(Kind.COORDINATOR, "", broker, transactions=coordinator_terms_of(link))
    if isinstance(target, Target) and target.dynamic:
        raise _not_implemented(NO_DYNAMIC_NODES)
    if target is None or (isinstance(target, Target) and target.address is None):
        if producer_attach.producer_request_of(link) is not None or _sends_batches(link):
            raise _invalid("a sender of numbered events or record batches needs a target: name a log")
        return LinkPlan(Kind.ANONYMOUS, "", broker)
    if not isinstance(target, Target) or not target.address:
        raise _invalid("the target's address is empty; name a log")
    address = target.address
    if address == protocol.MANAGEMENT_ADDRESS:
        return LinkPlan(Kind.MANAGEMENT, address, broker)
    if address == protocol.TOKEN_ADDRESS:
        return LinkPlan(Kind.TOKENS, address, broker)
    return _plan_publishing(link, address, broker)


def plan_of_message(link: ReceiverLink, address: str, broker: Broker) -> LinkPlan:
    """The plan for messages of an anonymous link that say this address; raises Refused."""
    if address in (protocol.MANAGEMENT_ADDRESS, protocol.TOKEN_ADDRESS):
        raise _not_allowed(f"{address} needs a link of its own: name it as the target")
    if address.startswith(protocol.REPLY_PREFIX):
        raise _not_implemented(NO_DYNAMIC_NODES)
    return _plan_publishing(link, address, broker)


def _plan_publishing(link: ReceiverLink, address: str, broker: Broker) -> LinkPlan:
    if address.endswith(protocol.INFO_SUFFIX):
        raise _not_allowed(f"{address} can only be received from")
    form = read_form(address, OF_TARGET)
    one, partition = _log_and_partition(link, form, broker)
    wish = producer_attach.producer_request_of(link)
    if wish is not None and partition is None:
        raise Refused(errors.producer_needs_partition(one.name))
    if form.key is not None and (wish is not None or _sends_batches(link)):
        raise _invalid("a sender of numbered events or record batches writes their keys itself: take key= out")
    return LinkPlan(Kind.INGEST, address, one, one.name, partition, producer=wish, key=form.key)


def _plan_outgoing(link: SenderLink, broker: Broker, may_browse: bool) -> LinkPlan:
    source = link.remote_source
    if isinstance(source, Source) and source.dynamic:
        return LinkPlan(Kind.REPLY, "", broker, dynamic=True)
    if source is None:
        return LinkPlan(Kind.UNSUBSCRIBE, "", broker)
    if not isinstance(source, Source) or not source.address:
        raise _invalid("the source has no address; name a log")
    address = source.address
    if address in (protocol.MANAGEMENT_ADDRESS, protocol.TOKEN_ADDRESS):
        return LinkPlan(Kind.REPLY, address, broker)
    if address == protocol.NODES_ADDRESS:
        return LinkPlan(Kind.NODES, address, broker)
    if address.endswith(protocol.INFO_SUFFIX):
        named = _log(link, address[: -len(protocol.INFO_SUFFIX)], broker)
        return LinkPlan(Kind.INFO, address, named, named.name)
    form = read_form(address, OF_SOURCE)
    one, partition = _log_and_partition(link, form, broker)
    group = form.properties.get(protocol.LINK_CONSUMER_GROUP)
    in_group = group is not None or protocol.LINK_CONSUMER_GROUP in link.remote_properties
    browses = may_browse and source.distribution_mode == "copy" and not source.durable and not in_group
    said_start = form.offset is not None or form.time_ms is not None
    offset = protocol.OFFSET_EARLIEST if browses and not said_start else form.offset
    selection = select(source.filter, offset, form.time_ms)
    wish = group_attach.group_terms_of(link, source, selection, group)
    if wish is not None and wish.epoch is not None and partition is None:
        raise _invalid(f"{protocol.LINK_EPOCH} is a claim on one partition: name it ({protocol.LINK_PARTITION})")
    until = read_until(link.remote_properties.get(protocol.LINK_UNTIL))
    if until is not None and (partition is None or wish is not None):
        raise _invalid(f"{protocol.LINK_UNTIL} is for a receiver of one partition that is no member of a group")
    chosen = selection if until is None else selection.before(until)
    publishers = link.remote_properties.get(protocol.LINK_PUBLISHERS) or False
    if not isinstance(publishers, bool):
        raise _invalid(f"{protocol.LINK_PUBLISHERS} must be a boolean, not {publishers!r}")
    return LinkPlan(
        Kind.EGRESS, address, one, one.name, partition, chosen,
        until=until, publishers=publishers, batches=_in_batches(link, partition, chosen, wish), membership=wish,
    )  # fmt: skip


def _in_batches(link: SenderLink, partition: str | None, chosen: Selection, wish: GroupTerms | None) -> bool:
    """Tell whether the peer takes record batches, and this link can do with them: all is of one partition, nothing
    becomes of a single event (its settlement moves no position, no transaction takes it), and none is left out."""
    if agreed_version(link.remote_properties.get(protocol.RECORD_BATCHES)) is None:
        return False
    of_one = partition is not None or (wish is not None and wish.group is not None)  # the nodes choose it
    whole = chosen.predicate is None or chosen.predicate.is_range
    return of_one and (wish is None or not wish.durable) and whole and link.presettled


def _sends_batches(link: ReceiverLink) -> bool:
    return agreed_version(link.remote_properties.get(protocol.RECORD_BATCHES)) is not None


def _log(link: Link, name: str, broker: Broker) -> OneLog:
    """The log of that name; if the peer says which one it means, that one and no other."""
    meant = _meant(link, protocol.LINK_LOG)
    if meant is not None and (refusal := another_cluster(broker, meant)) is not None:
        raise Refused(refusal)  # also if there is no log of that name here
    identity = broker.identity_of(name)
    if identity is None:
        raise Refused(errors.unknown_log(name))
    if meant not in (None, told_log(broker, identity)):
        raise Refused(errors.log_made_anew(name))
    return OneLog(broker, name, identity)


def _same_cluster(link: Link, broker: Broker) -> None:
    meant = _meant(link, protocol.LINK_CLUSTER)
    if meant is not None and (refusal := another_cluster(broker, meant)) is not None:
        raise Refused(refusal)


def _meant(link: Link, name: str) -> str | None:
    meant = link.remote_properties.get(name)
    if meant is not None and not isinstance(meant, str):
        raise _invalid(f"{name} must be the text that a node told, not {meant!r}")
    return meant


def _log_and_partition(link: Link, form: AddressForm, broker: Broker) -> tuple[OneLog, str | None]:
    address = form.log
    one = _log(link, address, broker)
    view = broker.describe(address)
    if view is None:
        raise Refused(errors.unknown_log(address))
    named = form.properties.get(protocol.LINK_PARTITION)
    partition = link.remote_properties.get(protocol.LINK_PARTITION, named)
    if named is not None and partition != named:
        raise _invalid(f"the address names partition {named!r}, and {protocol.LINK_PARTITION} another: {partition!r}")
    if partition is None:
        return one, None
    if not isinstance(partition, str):
        raise _invalid(f"{protocol.LINK_PARTITION} must be a symbol, not {type(partition).__name__}")
    if partition not in view.partitions:
        raise Refused(errors.unknown_partition(address, partition, len(view.partitions)))
    return one, str(partition)


def _invalid(text: str) -> Refused:
    return Refused(Error(INVALID_FIELD, text))


def _not_implemented(text: str) -> Refused:
    return Refused(Error(NOT_IMPLEMENTED, text))


def _not_allowed(text: str) -> Refused:
    return Refused(Error(NOT_ALLOWED, text))
