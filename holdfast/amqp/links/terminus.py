"""Sources and targets: the two ends of a link, as values.

A terminus is a frozen dataclass. The peer's comes from its attach frame (frame_scanner.py), so a filter arrives as
{symbol: Described(descriptor, value)}; ours is written to proton's C structure through bytes encoded by our own
codec, so that an answer can echo exactly what the peer asked. A null terminus (the AMQP way to say "refused",
or "none") is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cproton import lib

from holdfast.amqp.encoding.codec import (
    Described,
    encode_symbol_map,
    symbol_array,
    symbols_of,
)
from holdfast.amqp.errors import MalformedMessage
from holdfast.amqp.links.dispositions import write_data

NONDURABLE, CONFIGURATION, UNSETTLED_STATE = 0, 1, 2

_EXPIRY_CODES = {
    "link-detach": lib.PN_EXPIRE_WITH_LINK,
    "session-end": lib.PN_EXPIRE_WITH_SESSION,
    "connection-close": lib.PN_EXPIRE_WITH_CONNECTION,
    "never": lib.PN_EXPIRE_NEVER,
}
_MODE_CODES = {None: lib.PN_DIST_MODE_UNSPECIFIED, "copy": lib.PN_DIST_MODE_COPY, "move": lib.PN_DIST_MODE_MOVE}


@dataclass(frozen=True, slots=True)
class Terminus:
    """Common part of sources and targets. durable: 0 none, 1 configuration, 2 unsettled-state."""

    address: str | None = None
    durable: int = NONDURABLE
    expiry_policy: str = "session-end"
    timeout_s: int = 0
    dynamic: bool = False
    capabilities: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source(Terminus):
    """Source of a link's messages. filter: symbol -> Described(descriptor, value), or None for a null filter."""

    distribution_mode: str | None = None
    filter: Mapping[str, Any] = field(default_factory=dict)
    outcomes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Target(Terminus):
    """Target of a link's messages."""


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The target of a transaction control link."""

    capabilities: tuple[str, ...] = ()


def _text_or_none(value: Any, what: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise MalformedMessage(f"{what} is a {type(value).__name__}, not a text")
    return None if value is None else str(value)


def _number(value: Any, what: str) -> int:
    if value is None:
        return 0
    if not isinstance(value, int):
        raise MalformedMessage(f"{what} is a {type(value).__name__}, not a number")
    return int(value)


def map_of(value: Any, what: str) -> dict[str, Any]:
    """A map with symbols as keys out of a decoded value; null counts as empty."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise MalformedMessage(f"{what} is not a map with symbols as keys")
    return value


_KINDS: dict[Any, type] = {
    0x28: Source,
    "amqp:source:list": Source,
    0x29: Target,
    "amqp:target:list": Target,
    0x30: Coordinator,
    "amqp:coordinator:list": Coordinator,
}


def terminus_of(value: Any) -> Source | Target | Coordinator | None:
    """A terminus out of a decoded attach field. Raises MalformedMessage."""
    if value is None:
        return None
    known = isinstance(value, Described) and isinstance(value.descriptor, (int, str))
    kind = _KINDS.get(value.descriptor) if known else None
    if kind is None or not isinstance(value.value, list):
        raise MalformedMessage("a terminus is neither source, target nor coordinator")
    fields = value.value + [None] * 11
    if kind is Coordinator:
        return Coordinator(symbols_of(fields[0]))
    common: dict[str, Any] = {
        "address": _text_or_none(fields[0], "address"),
        "durable": _number(fields[1], "durable"),
        "expiry_policy": _text_or_none(fields[2], "expiry-policy") or "session-end",
        "timeout_s": _number(fields[3], "timeout"),
        "dynamic": fields[4] is True,
    }
    if common["expiry_policy"] not in _EXPIRY_CODES or common["durable"] not in (0, 1, 2):
        raise MalformedMessage("a terminus has an unknown expiry-policy or durability")
    properties = map_of(fields[5], "dynamic-node-properties")
    if kind is Target:
        return Target(**common, properties=properties, capabilities=symbols_of(fields[6]))
    mode = _text_or_none(fields[6], "distribution-mode")
    if mode not in _MODE_CODES:
        raise MalformedMessage("a source has an unknown distribution-mode")
    return Source(
        **common,
        properties=properties,
        distribution_mode=mode,
        filter=map_of(fields[7], "filter"),
        outcomes=symbols_of(fields[9]),
        capabilities=symbols_of(fields[10]),
    )


def write_terminus(impl: Any, terminus: Source | Target | Coordinator | None) -> None:
    """Sets a pn_terminus_t of ours before its link is opened."""
    if terminus is None:
        lib.pn_terminus_set_type(impl, lib.PN_UNSPECIFIED)
        return
    if terminus.capabilities:
        write_data(lib.pn_terminus_capabilities(impl), symbol_array(terminus.capabilities))
    if isinstance(terminus, Coordinator):
        lib.pn_terminus_set_type(impl, lib.PN_COORDINATOR)
        return
    lib.pn_terminus_set_type(impl, lib.PN_SOURCE if isinstance(terminus, Source) else lib.PN_TARGET)
    if terminus.address is not None:
        lib.pn_terminus_set_address(impl, terminus.address.encode())
    lib.pn_terminus_set_durability(impl, terminus.durable)
    if terminus.expiry_policy != "session-end":
        lib.pn_terminus_set_expiry_policy(impl, _EXPIRY_CODES[terminus.expiry_policy])
    lib.pn_terminus_set_timeout(impl, terminus.timeout_s)
    lib.pn_terminus_set_dynamic(impl, terminus.dynamic)
    if terminus.properties:
        write_data(lib.pn_terminus_properties(impl), encode_symbol_map(terminus.properties))
    if isinstance(terminus, Source):
        lib.pn_terminus_set_distribution_mode(impl, _MODE_CODES[terminus.distribution_mode])
        if terminus.filter:
            write_data(lib.pn_terminus_filter(impl), encode_symbol_map(terminus.filter))
        if terminus.outcomes:
            write_data(lib.pn_terminus_outcomes(impl), symbol_array(terminus.outcomes))
