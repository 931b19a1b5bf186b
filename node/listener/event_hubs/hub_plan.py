"""Attaches in the dialect of Event Hubs: which links are of it, and what they ask for.

A link is of the dialect if its peer has put a token to `$cbs`, or if the form of its address says so; a peer that knows
the Event Stream Extensions or follows redirects never is. Such a peer is served wherever it came to: its SDK knows one
address.

The rule of epochs is the service's, on the counter that consumer groups have: a receiver with an epoch claims its
partition, and one without is a guest there, for as long as no claim is in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from holdfast import protocol
from holdfast.amqp import Link, ReceiverLink, SenderLink, Source, Target
from node.listener.broker_interface import Broker
from node.listener.errors import Refused
from node.listener.event_hubs import hub_errors
from node.listener.event_hubs.addresses import DEFAULT_GROUP, HubAddress, is_hub_form, read_address
from node.listener.event_hubs.hub_annotations import LastEvent
from node.listener.event_hubs.selectors import Supplied
from node.listener.outgoing.consumer_groups.group_attach import GroupTerms
from node.partition.api import PartitionDescription, ReaderClaim
from node.partition.consumer_groups.group_state import MAX_EPOCH, MAX_KEY_CHARACTERS, NOTHING, TERMINUS, Claim

MAX_RECEIVER_NAME = 128
"""Characters kept of a receiver's name for itself, which others are told when it stands in their way."""


@dataclass(frozen=True, slots=True)
class HubTerms:
    """Terms of a link of the dialect, beside its hub and partition."""

    group: str = DEFAULT_GROUP
    receiver: str = ""  # the receiver's name for itself
    epoch: int | None = None
    last: LastEvent | None = None  # deliveries tell the partition's last event
    supplied: Supplied | None = None  # a position that must not lie beyond the end
    resets: bool = False  # its processor drops a checkpoint that is refused as such

    @property
    def needs_end(self) -> bool:
        """True if the partition's leader is asked for its end before the attach is answered."""
        return self.last is not None or self.supplied is not None

    def look(self, info: PartitionDescription) -> None:
        """Take the leader's word of the partition's end. Raises Refused."""
        if self.supplied is not None:
            self.supplied.check(info, resets=self.resets)
        if self.last is not None:
            self.last.heard(info)

    @property
    def guest(self) -> ReaderClaim:
        """The right of a receiver without an epoch: to read while no claim is in force."""
        return ReaderClaim(self.group, 0)


@dataclass(frozen=True, slots=True)
class EpochTerms(GroupTerms):
    """A receiver with an epoch: it takes the partition also from one with the same."""

    receiver: str = ""

    def claim(self, container: str, link: str) -> Claim:
        own = GroupTerms.claim(self, container, link)
        return Claim(own.key, self.receiver or own.member, own.identity, own.epoch, equal_takes=True)


def hub_address_of(link: Link, *, speaks_event_hubs: bool, knows_streams: bool) -> HubAddress | None:
    """The address of a link of the dialect; None: it is of the other."""
    place = link.remote_target if isinstance(link, ReceiverLink) else link.remote_source
    if knows_streams or not isinstance(place, Source | Target) or place.dynamic or not place.address:
        return None
    address = place.address
    if address.startswith("$") or address.endswith(protocol.INFO_SUFFIX):
        return None
    return read_address(address) if speaks_event_hubs or is_hub_form(address) else None


def find_hub(address: HubAddress, broker: Broker) -> int:
    """The identity of the log that a hub's name stands for. Raises Refused if it, or the partition, is not there."""
    view, identity = broker.describe(address.hub), broker.identity_of(address.hub)
    if view is None or identity is None:
        raise Refused(hub_errors.hub_not_found(address.text))
    if address.partition is not None and address.partition not in view.partitions:
        raise Refused(hub_errors.partition_out_of_range(address.hub, address.partition, len(view.partitions)))
    return identity


def receiver_terms(link: SenderLink, address: HubAddress) -> HubTerms:
    """Read the terms of a receiver. Raises Refused."""
    group = address.group or DEFAULT_GROUP
    if address.partition is None:
        raise Refused(hub_errors.receiver_needs_partition(address.text))
    if len(group) >= MAX_KEY_CHARACTERS or group.startswith(TERMINUS):
        raise Refused(hub_errors.group_invalid(address.text[:MAX_KEY_CHARACTERS], MAX_KEY_CHARACTERS - 1))
    said, wanted = link.remote_properties, link.remote_desired_capabilities
    name = said.get(protocol.HUB_RECEIVER_NAME)
    return HubTerms(
        group,
        str(name)[:MAX_RECEIVER_NAME] if isinstance(name, str) else "",
        _epoch(said),
        LastEvent() if protocol.HUB_RUNTIME_METRIC in wanted else None,
        resets=protocol.HUB_GEOREPLICATION in wanted and _is_dot_net(link.peer_properties),
    )


def epoch_terms(terms: HubTerms) -> EpochTerms | None:
    if terms.epoch is None:
        return None
    return EpochTerms(terms.group, terms.epoch, False, NOTHING, False, receiver=terms.receiver)


def with_position(terms: HubTerms, supplied: Supplied | None) -> HubTerms:
    return replace(terms, supplied=supplied)


def _is_dot_net(connection: Mapping[str, Any]) -> bool:
    """True for the .NET SDK: no other knows what to do with `INVALID_OFFSET`. `connection`: properties of its open."""
    return str(connection.get("framework", "")).startswith(".NET")


def _epoch(said: Mapping[str, Any]) -> int | None:
    epoch = said.get(protocol.HUB_EPOCH)
    if epoch is None:
        return None
    if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch <= MAX_EPOCH:
        raise Refused(hub_errors.epoch_invalid(epoch))
    return int(epoch)
