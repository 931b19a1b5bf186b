"""Lexer: filter text into tokens.

Problem: `-` is an operator, and part of the names of annotations and of properties as AMQP spells them.
Rule: a hyphen belongs to a name only after a section's prefix: for a section whose fields are known, as far as that
makes a known field; in message and delivery annotations and footers, before a letter. Everywhere else it is minus, and
`[name-with-hyphens]` is the way to write one. So `p.group-sequence-1` is a subtraction.

A name without a section is an application property, says the specification. In an event filter it is a field that every
event has, and any other is refused: the user that writes `key = 'ann'` means the key, and a filter for a property of
that name would silently match nothing.
"""

from __future__ import annotations

import re
from typing import Literal as OneOf
from typing import NamedTuple

from node.filters import vocabulary
from node.filters.syntax_tree import (
    Field,
    FilterError,
    Literal,
    Section,
)

MAX_CHARACTERS = 4096
"""Characters of one filter. A usual one has a hundred; an attach has 16 KiB for everything in it."""

MAX_TOKENS = 400
"""Tokens of one filter: bounds what every event may cost."""

MAX_DIGITS = 40
"""Digits of one number: more than any AMQP integer or double has."""

Kind = OneOf["word", "value", "field", "symbol", "end"]


class Token(NamedTuple):
    """A token. `text` of a word is in upper case; `node` is the meaning of a value or a field."""

    kind: Kind
    text: str
    at: int
    node: Literal | Field | None = None


_SPACE = re.compile(r"[ \t\r\n\f]+")
_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BINARY = re.compile(r"0[xX][0-9A-Fa-f]*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HYPHENATED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z_][A-Za-z0-9_]*)*")
_PREFIX = re.compile(r"([A-Za-z]+(?:[_-][A-Za-z]+)?)\s*\.\s*(?=[A-Za-z_\[])")
_SYMBOL = re.compile(r"<>|!=|<=|>=|[=<>+\-*/%(),]")
_STREAMS_NAME = re.compile(r"event[-_]streams[-_]")


def tokens(text: str, *, event_fields: bool = False) -> list[Token]:
    """Split a text into tokens, with an end token. `event_fields`: a name without a section is a field of the event.
    Raises FilterError."""
    if len(text) > MAX_CHARACTERS:
        raise FilterError(
            f"the filter has {len(text)} characters; at most {MAX_CHARACTERS} are allowed", MAX_CHARACTERS
        )
    found: list[Token] = []
    pos = 0
    while pos < len(text):
        space = _SPACE.match(text, pos)
        if space is not None:
            pos = space.end()
            continue
        token, pos = _token(text, pos)
        if event_fields and token.kind == "field" and _WORD.fullmatch(token.text):
            token = token._replace(node=_event_field(token))
        found.append(token)
        if len(found) > MAX_TOKENS:
            raise FilterError(f"the filter has more than {MAX_TOKENS} words and signs; write a simpler one", token.at)
    found.append(Token("end", "the end", len(text)))
    return found


def _token(text: str, pos: int) -> tuple[Token, int]:
    first = text[pos]
    if first in "'\"":
        value, after = _quoted(text, pos, first)
        return Token("value", text[pos:after], pos, Literal(value, pos)), after
    if first == "[":
        name, after = _delimited(text, pos)
        return Token("field", text[pos:after], pos, Field("a", name, pos)), after
    if first.isdigit() or (first == "." and text[pos + 1 : pos + 2].isdigit()):
        return _number(text, pos)
    prefix = _PREFIX.match(text, pos)
    if prefix is not None:
        return _prefixed(text, pos, prefix)
    word = _WORD.match(text, pos)
    if word is not None:
        return _word(text, pos, word.group())
    symbol = _SYMBOL.match(text, pos)
    if symbol is not None:
        sign = symbol.group()
        return Token("symbol", "<>" if sign == "!=" else sign, pos), symbol.end()
    raise FilterError(f"{first!r} has no meaning here; put names with unusual characters in [brackets]", pos)


def _event_field(token: Token) -> Field:
    found = vocabulary.EVENT_FIELDS.get(token.text)
    if found is None:
        known = ", ".join(vocabulary.EVENT_FIELDS)
        raise FilterError(
            f"an event has no field {token.text!r}; it has {known}. An application property is written a.{token.text}",
            token.at,
        )
    return Field(found.section, found.name, token.at)


def _quoted(text: str, pos: int, quote: str) -> tuple[str, int]:
    """Read a string whose quote is doubled inside."""
    start = pos + 1
    parts: list[str] = []
    while True:
        end = text.find(quote, start)
        if end < 0:
            raise FilterError(f"the string that begins here has no closing {quote}", pos)
        parts.append(text[start:end])
        if text[end + 1 : end + 2] != quote:
            return quote.join(parts), end + 1
        start = end + 2


def _delimited(text: str, pos: int) -> tuple[str, int]:
    """Read a name in brackets; brackets inside are doubled."""
    name: list[str] = []
    place = pos + 1
    while place < len(text):
        char = text[place]
        if char in "[]":
            if text[place + 1 : place + 2] != char:
                if char == "[":
                    raise FilterError("a [ within brackets is written [[", place)
                break
            place += 1
        elif char < " " or char == "\x7f":
            raise FilterError("a name has no control characters", place)
        name.append(char)
        place += 1
    else:
        raise FilterError("the name that begins here has no closing ]", pos)
    if not name:
        raise FilterError("there is no name within the brackets", pos)
    return "".join(name), place + 1


def _number(text: str, pos: int) -> tuple[Token, int]:
    binary = _BINARY.match(text, pos)
    if binary is not None:
        digits = binary.group()[2:]
        if len(digits) % 2 or not digits:
            raise FilterError("a binary constant has two hexadecimal digits for each byte", pos)
        return Token("value", binary.group(), pos, Literal(bytes.fromhex(digits), pos)), binary.end()
    number = _NUMBER.match(text, pos)
    if number is None:  # a digit of another script
        raise FilterError(f"{text[pos]!r} has no meaning here; numbers have the digits 0 to 9", pos)
    written = number.group()
    if _WORD.match(text, number.end()):
        raise FilterError("a number ends in a letter; put names that begin with a digit in [brackets]", pos)
    if len(written) > MAX_DIGITS:
        raise FilterError(f"a number has at most {MAX_DIGITS} digits", pos)
    value: int | float = int(written) if written.isdigit() else float(written)
    return Token("value", written, pos, Literal(value, pos)), number.end()


def _prefixed(text: str, pos: int, prefix: re.Match[str]) -> tuple[Token, int]:
    section = vocabulary.SECTIONS.get(prefix.group(1).replace("-", "_"))
    if section is None:
        known = ", ".join(name for name in vocabulary.SECTIONS if len(name) > 1)
        raise FilterError(f"{prefix.group(1)!r} is no section; there are {known}, and their first letters", pos)
    start = prefix.end()
    if text[start] == "[":
        name, after = _delimited(text, start)
    else:
        name, after = _plain_name(text, start, section)
    known_fields = vocabulary.KNOWN_FIELDS.get(section)
    if known_fields is not None:
        found = name.replace("_", "-")
        if found not in known_fields:
            raise FilterError(f"section {prefix.group(1)} has no {name!r}; it has {', '.join(known_fields)}", start)
        name = found
    return Token("field", text[pos:after], pos, Field(section, name, pos)), after


def _plain_name(text: str, start: int, section: Section) -> tuple[str, int]:
    short, long = _WORD.match(text, start), _HYPHENATED.match(text, start)
    assert short is not None
    assert long is not None, "the prefix looked ahead"
    if section == "a":
        return short.group(), short.end()
    known = vocabulary.KNOWN_FIELDS.get(section)
    if known is None:
        return long.group(), long.end()
    whole = long.group()
    for end in [len(whole), *(place.start() for place in reversed(list(re.finditer("-", whole))))]:
        if whole[:end].replace("_", "-") in known:
            return whole[:end], start + end
    return whole, long.end()


def _word(text: str, pos: int, word: str) -> tuple[Token, int]:
    upper = word.upper()
    if upper in vocabulary.RESERVED:
        return Token("word", upper, pos), pos + len(word)
    if _STREAMS_NAME.match(text, pos):
        raise FilterError(f"an annotation of the node needs its section: write d.{vocabulary.OFFSET} and the like", pos)
    return Token("field", word, pos, Field("a", word, pos)), pos + len(word)
