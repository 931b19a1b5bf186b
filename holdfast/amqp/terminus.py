"""Sources and targets: the two ends of a link, as values.

A terminus of ours is a frozen dataclass. It is written to and read from proton's C structure in one place
(here), through encoded bytes and our own codec, so a filter arrives as {symbol: Described(descriptor, value)}
and an answer can echo exactly what the peer asked. A null terminus (the AMQP way to say "refused", or "none")
is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cproton import ffi, lib

from holdfast.amqp.codec import decode_value, encode_symbol_map, symbol_array, symbols_of
from holdfast.amqp.errors import MalformedMessage

NONDURABLE, CONFIGURATION, UNSETTLED_STATE = 0, 1, 2

_EXPIRY_CODES = {
    "link-detach": lib.PN_EXPIRE_WITH_LINK,
    "session-end": lib.PN_EXPIRE_WITH_SESSION,
    "connection-close": lib.PN_EXPIRE_WITH_CONNECTION,
    "never": lib.PN_EXPIRE_NEVER,
}
_EXPIRY_NAMES = {code: name for name, code in _EXPIRY_CODES.items()}
_MODE_CODES = {None: lib.PN_DIST_MODE_UNSPECIFIED, "copy": lib.PN_DIST_MODE_COPY, "move": lib.PN_DIST_MODE_MOVE}
_MODE_NAMES = {code: name for name, code in _MODE_CODES.items()}


@dataclass(frozen=True, slots=True)
class Terminus:
    """What sources and targets share. durable: 0 none, 1 configuration, 2 unsettled-state."""

    address: str | None = None
    durable: int = NONDURABLE
    expiry_policy: str = "session-end"
    timeout_s: int = 0
    dynamic: bool = False
    capabilities: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source(Terminus):
    """Where messages come from. filter: symbol -> Described(descriptor, value), or None for a null filter."""

    distribution_mode: str | None = None
    filter: Mapping[str, Any] = field(default_factory=dict)
    outcomes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Target(Terminus):
    """Where messages go."""


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The target of a transaction control link."""

    capabilities: tuple[str, ...] = ()


def read_data(data: Any) -> Any:
    """The single value in a pn_data_t (None if it is empty), copied out of C. Raises MalformedMessage."""
    if data == ffi.NULL:
        return None
    lib.pn_data_rewind(data)
    size = lib.pn_data_encoded_size(data)
    if size <= 0:
        return None
    buffer = ffi.new("char[]", size)
    written = lib.pn_data_encode(data, buffer, size)
    if written < 0:
        raise MalformedMessage("a field of the peer's frame is not valid AMQP")
    return decode_value(ffi.buffer(buffer, written)[:])[0]


def write_data(data: Any, encoded: bytes) -> None:
    """Replaces the contents of a pn_data_t by one encoded value."""
    lib.pn_data_clear(data)
    if lib.pn_data_decode(data, encoded, len(encoded)) != len(encoded):
        raise AssertionError(f"proton refused a value that our codec wrote: {encoded!r}")


def read_map(data: Any) -> dict[str, Any]:
    """A map with symbol keys; null counts as empty."""
    value = read_data(data)
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise MalformedMessage("expected a map with symbols as keys")
    return value


def text(raw: Any) -> str | None:
    """A C string from the peer; bytes that are not UTF-8 are replaced, never an error."""
    return None if raw == ffi.NULL else ffi.string(raw).decode("utf-8", "replace")


def read_terminus(impl: Any) -> Source | Target | Coordinator | None:
    """What a pn_terminus_t holds. Raises MalformedMessage if the peer's filter or properties are not maps."""
    kind = lib.pn_terminus_get_type(impl)
    if kind == lib.PN_UNSPECIFIED:
        return None
    capabilities = symbols_of(read_data(lib.pn_terminus_capabilities(impl)))
    if kind == lib.PN_COORDINATOR:
        return Coordinator(capabilities)
    common: dict[str, Any] = {
        "address": text(lib.pn_terminus_get_address(impl)),
        "durable": int(lib.pn_terminus_get_durability(impl)),
        "expiry_policy": _EXPIRY_NAMES.get(lib.pn_terminus_get_expiry_policy(impl), "session-end"),
        "timeout_s": int(lib.pn_terminus_get_timeout(impl)),
        "dynamic": bool(lib.pn_terminus_is_dynamic(impl)),
        "capabilities": capabilities,
        "properties": read_map(lib.pn_terminus_properties(impl)),
    }
    if kind == lib.PN_TARGET:
        return Target(**common)
    return Source(
        **common,
        distribution_mode=_MODE_NAMES.get(lib.pn_terminus_get_distribution_mode(impl)),
        filter=read_map(lib.pn_terminus_filter(impl)),
        outcomes=symbols_of(read_data(lib.pn_terminus_outcomes(impl))),
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
