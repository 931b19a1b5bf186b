"""Addresses of Event Hubs: a hub, a partition of it, or a partition as a consumer group reads it.

SDKs write them as whole URLs, with a leading slash, or bare. Names may contain dots, and slashes in this dialect, so an
address is read from its right end; the words between names are compared without case.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast import protocol

DEFAULT_GROUP = "$Default"

_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*")
_PARTITIONS, _GROUPS = "partitions", "consumergroups"


@dataclass(frozen=True, slots=True)
class HubAddress:
    hub: str
    group: str | None = None
    partition: str | None = None

    @property
    def text(self) -> str:
        """The address without a host, in the service's spelling."""
        group = "" if self.group is None else f"/ConsumerGroups/{self.group}"
        return f"{self.hub}{group}" + ("" if self.partition is None else f"/Partitions/{self.partition}")


def is_hub_form(address: str) -> bool:
    """Tell whether the address is one of Event Hubs by its form alone. No log has a slash in its name."""
    return "/" in address and not address.endswith(protocol.INFO_SUFFIX) and not address.startswith("$")


def read_address(address: str) -> HubAddress:
    """Read an address. A path that makes no sense is the name of a hub that nobody has."""
    words = path_of(address).split("/")
    group = partition = None
    if len(words) > 2 and words[-2].lower() == _PARTITIONS:
        partition = words[-1]
        words = words[:-2]
    for at in range(len(words) - 2, 0, -1):
        if words[at].lower() == _GROUPS:
            group = group_name("/".join(words[at + 1 :]))
            words = words[:at]
            break
    return HubAddress("/".join(words), group, partition)


def path_of(address: str) -> str:
    """The path of an address or URL, without the slashes around it."""
    return _AUTHORITY.sub("", address, count=1).strip("/")


def group_name(name: str) -> str:
    """The group that a name stands for: the service compares names without case, and checkpoints have lower case."""
    return DEFAULT_GROUP if name.lower() == DEFAULT_GROUP.lower() else name.lower()
