"""Names of blobs as processors of Event Hubs write them: NAMESPACE/hub/group/ownership/N and .../checkpoint/N.

SDKs write them in lower case, whatever the hub is called. The namespace is the host name of a connection string. It is
left out, so that two processors that came by the names of two nodes see each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from node.listener.event_hubs.addresses import group_name
from node.partition.consumer_groups.group_state import MAX_KEY_CHARACTERS

Kind = Literal["ownership", "checkpoint"]
KINDS = ("ownership", "checkpoint")


@dataclass(frozen=True, slots=True)
class BlobName:
    """Name of a blob, read. `text`: the name as the client wrote it, up to the partition."""

    text: str
    hub: str
    group: str
    kind: Kind
    partition: str


@dataclass(frozen=True, slots=True)
class Listed:
    """Prefix of a list, read: all blobs of a kind, of a group of a hub."""

    text: str
    hub: str
    group: str
    kind: Kind


def read_name(text: str) -> BlobName | None:
    """Read the name of a blob; None: it is no ownership and no checkpoint."""
    prefix, _, partition = text.rpartition("/")
    listed = read_prefix(f"{prefix}/")
    if listed is None or not partition:
        return None
    return BlobName(listed.text, listed.hub, listed.group, listed.kind, partition)


def read_prefix(text: str) -> Listed | None:
    """Read the prefix of a list; None: nothing has it."""
    words = text.rstrip("/").split("/")
    if len(words) < 4 or words[-1].lower() not in KINDS:
        return None
    kind, group = cast(Kind, words[-1].lower()), group_name(words[-2])
    if not 0 < len(group) < MAX_KEY_CHARACTERS or not group.isprintable():  # such a group can be no other client's
        return None
    return Listed("/".join(words) + "/", "/".join(words[1:-2]), group, kind)
