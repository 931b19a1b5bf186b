"""Terms of a receiver's attach: its consumer group, its epoch and its durability.

Problem: a group, an epoch, a durable source and a place to start come in six fields of two maps; together they mean one
thing: in whose name the link reads, and whether its settlements move anything.
Rules never broken: no receiver is put into a group that it did not name (ES-31); what is malformed is refused, and what
would be promised in vain (a durable terminus of a peer without a name) is refused as well.

A source is durable here when it asks for durability and outlives its link: expiry-policy `never`, or a timeout above 0.
The timeout runs from the end of the link, in the time of the log. For a member of a group the group's position is the
durable state, and stays until the group is deleted.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from holdfast import protocol
from holdfast.amqp import SenderLink, Source
from holdfast.amqp.errors import INVALID_FIELD, Error
from node.listener.errors import Refused
from node.listener.outgoing.source_filters import Selection
from node.partition.api import Latest
from node.partition.consumer_groups.group_state import (
    MAX_EPOCH,
    MAX_KEY_CHARACTERS,
    NOTHING,
    TERMINUS,
    Claim,
    terminus_key,
)

MAX_TIMEOUT_S = 0xFFFFFFFF
"""Largest value of AMQP's `seconds`."""


@dataclass(frozen=True, slots=True)
class GroupTerms:
    """The name that a receiver reads in. `group` None: a durable terminus of its own."""

    group: str | None
    epoch: int | None
    durable: bool  # what is settled moves the position
    expiry_s: int
    resume: bool  # begin where the position is, if there is one
    pin: bool = False  # if there is none, and it begins at the end: let that be the group's position

    def claim(self, container: str, link: str) -> Claim:
        """The claim for a link. `container`: the peer's name for itself; without one a link cannot continue after its
        end."""
        identity = f"{container}/{link}" if container else f"anonymous-{uuid.uuid4()}/{link}"
        if len(identity) >= MAX_KEY_CHARACTERS:
            raise _invalid(f"container-id and link name together have at most {MAX_KEY_CHARACTERS - 1} characters")
        member = container or identity
        if self.group is not None:
            return Claim(self.group, member, identity, self.epoch)
        if not container:
            raise _invalid("a durable source is known by container-id and link name: open with a container-id")
        return Claim(terminus_key(identity), member, identity, steal=True, expiry_s=self.expiry_s)


def group_terms_of(
    link: SenderLink, source: Source, selection: Selection, named: str | None = None
) -> GroupTerms | None:
    """Read the terms of an attach. None: it reads for itself, and keeps nothing. `named`: the group that its address
    names. Raises Refused."""
    group, epoch = _group(link, named), _epoch(link)
    outlives = source.expiry_policy == "never" or source.timeout_s > 0
    durable = source.durable > 0 and (outlives or group is not None)
    if group is None and epoch is not None:
        raise _invalid(f"{protocol.LINK_EPOCH} belongs to a consumer group: name one ({protocol.LINK_CONSUMER_GROUP})")
    if group is None and not durable:
        return None
    resume = link.remote_properties.get(protocol.LINK_RESUME)
    if resume is not None and not isinstance(resume, bool):
        raise _invalid(f"{protocol.LINK_RESUME} must be a boolean, not {resume!r}")
    unfiltered = not selection.in_force and isinstance(selection.start, Latest)
    pin = resume is True and group is not None and unfiltered
    if resume is None:
        resume = durable or unfiltered
    expiry_s = NOTHING if source.expiry_policy == "never" else min(source.timeout_s, MAX_TIMEOUT_S)
    return GroupTerms(group, epoch, durable, expiry_s, resume, pin)


def _group(link: SenderLink, named: str | None) -> str | None:
    group = link.remote_properties.get(protocol.LINK_CONSUMER_GROUP, named)
    if named is not None and group != named:
        raise _invalid(f"the address names group {named!r}, and {protocol.LINK_CONSUMER_GROUP} another: {group!r}")
    if group is None:
        return None
    if not isinstance(group, str) or not 0 < len(group) < MAX_KEY_CHARACTERS or group.startswith(TERMINUS):
        raise _invalid(f"{protocol.LINK_CONSUMER_GROUP} must be a string of 1 to {MAX_KEY_CHARACTERS - 1} characters")
    return str(group)


def _epoch(link: SenderLink) -> int | None:
    epoch = link.remote_properties.get(protocol.LINK_EPOCH)
    if epoch is None:
        return None
    if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch <= MAX_EPOCH:
        raise _invalid(f"{protocol.LINK_EPOCH} must be a whole number from 0 to {MAX_EPOCH}, not {epoch!r}")
    return int(epoch)


def _invalid(text: str) -> Refused:
    return Refused(Error(INVALID_FIELD, text))
