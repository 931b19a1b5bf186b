"""Messages as bytes, section by section, in whatever encoding a test wants."""

from __future__ import annotations

from typing import Any

from holdfast.amqp import encode_value, symbol
from node.filters import vocabulary

LISTS = {"h": (0x70, vocabulary.HEADER_FIELDS), "p": (0x73, vocabulary.PROPERTY_FIELDS)}
MAPS = {"m": 0x72, "a": 0x74, "f": 0x78}
NAMES = {
    0x70: "amqp:header:list", 0x72: "amqp:message-annotations:map", 0x73: "amqp:properties:list",
    0x74: "amqp:application-properties:map", 0x75: "amqp:data:binary", 0x78: "amqp:footer:map",
}  # fmt: skip


def section(code: int, value: bytes, descriptor: str = "short") -> bytes:
    if descriptor == "long":
        return b"\x00\x80" + code.to_bytes(8, "big") + value
    if descriptor == "symbol":
        return b"\x00" + encode_value(symbol(NAMES[code])) + value
    return b"\x00\x53" + bytes((code,)) + value


def message(sections: dict[str, dict[str, Any]], body: bytes = b"body", descriptor: str = "short") -> bytes:
    """In the order of the specification, the body as one data section."""
    parts: dict[int, bytes] = {0x75: section(0x75, encode_value(body), descriptor)}
    for letter, values in sections.items():
        if letter in LISTS:
            code, names = LISTS[letter]
            parts[code] = section(code, encode_value([values.get(name) for name in names]), descriptor)
        else:
            keys: dict[Any, Any] = {(key if letter == "a" else symbol(key)): value for key, value in values.items()}
            parts[MAPS[letter]] = section(MAPS[letter], encode_value(keys), descriptor)
    return b"".join(parts[code] for code in sorted(parts))
