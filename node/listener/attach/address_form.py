"""Addresses with words behind a question mark, for clients that can name an address and nothing else.

    orders?partition=0&start=earliest          as a source
    orders?group=billing                       as a source: a member of the group
    orders?partition=0                         as a target
    orders?key=ann                             as a target: the key of each event that has none

They say what other clients say by link properties and filters. A word that is not known, or not for this direction, is
refused: a receiver that is not where it wants to be would miss what it came for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import parse_qsl

from holdfast import protocol
from holdfast.amqp.errors import INVALID_FIELD, Error
from node.listener.errors import Refused

MARK = "?"
"""No log has it in its name."""

OF_SOURCE = ("partition", "start", "group")
OF_TARGET = ("partition", "key")
GROUP_KEY_LIMIT = 4096
"""Longest group key, in characters. Hashing is Python: a key of a megabyte would stop the node for a second."""

START_AFTER, START_TIME = "offset:", "time:"
_PROPERTIES = {"partition": protocol.LINK_PARTITION, "group": protocol.LINK_CONSUMER_GROUP}


@dataclass(frozen=True, slots=True)
class AddressForm:
    """An address, read. `properties`: link properties that it stands for. `offset`, `time_ms`: where to start.
    `key`: of events that have none."""

    log: str
    properties: Mapping[str, str] = field(default_factory=dict)
    offset: str | None = None
    time_ms: int | None = None
    key: str | None = None


def log_of(address: str) -> str:
    """The log that an address is about."""
    return address.partition(MARK)[0]


def read_form(address: str, known: tuple[str, ...]) -> AddressForm:
    """Read an address. `known`: the words that are for this direction. Raises Refused."""
    log, mark, words = address.partition(MARK)
    if not mark:
        return AddressForm(address)
    try:
        pairs = parse_qsl(words or "&", keep_blank_values=True, strict_parsing=True, max_num_fields=len(OF_SOURCE))
    except ValueError:
        raise _invalid(address, f"write name=value, with & between; there are {', '.join(known)}") from None
    said = dict(pairs)
    if len(said) < len(pairs):
        raise _invalid(address, "a name stands twice")
    for name, value in pairs:
        if name not in known:
            raise _invalid(address, f"{name[:40]!r} is not known here; there are {', '.join(known)}")
        if not value:
            raise _invalid(address, f"{name} has no value")
    properties = {_PROPERTIES[name]: value for name, value in pairs if name in _PROPERTIES}
    start = said.get("start")
    key = said.get("key")
    if key is not None and len(key) > GROUP_KEY_LIMIT:
        raise _invalid(address, f"the key has {len(key)} characters; at most {GROUP_KEY_LIMIT} are allowed")
    return AddressForm(log, properties, *((None, None) if start is None else _start(address, start)), key)


def _start(address: str, text: str) -> tuple[str | None, int | None]:
    """(offset, time in ms) of a start."""
    if text in ("earliest", "latest"):
        return f"@{text}", None
    if text.startswith(START_AFTER):
        return text.removeprefix(START_AFTER), None  # judged as that of a filter is
    if text.startswith(START_TIME):
        said = text.removeprefix(START_TIME)
        if said.isascii() and said.isdigit() and len(said) < 16:
            return None, int(said)
        try:
            at = datetime.fromisoformat(said)
        except ValueError:
            raise _invalid(address, f"{said[:40]!r} is no time: ISO 8601, or milliseconds since 1970") from None
        if at.tzinfo is None:
            raise _invalid(address, f"{said[:40]!r} names no time zone; write Z behind it for UTC")
        return None, int(at.timestamp() * 1000)
    raise _invalid(address, "start is earliest, latest, offset:OFFSET or time:WHEN")


def _invalid(address: str, why: str) -> Refused:
    return Refused(Error(INVALID_FIELD, f"address {address[:80]!r}: {why}"))
