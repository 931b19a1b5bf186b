"""Shared Key signatures of Blob Storage, with the name and a key of a rule as account.

Source: "Authorize with Shared Key" of the Storage REST documentation, the form since version 2015-02-21.
"""

from __future__ import annotations

import base64
import binascii
import email.utils
import hashlib
import hmac
import re
import time
from collections.abc import Mapping
from urllib.parse import parse_qsl

SCHEME = "SharedKey"
MAX_SKEW_S = 15 * 60
"""Difference between a request's date and our clock: an older request may be one that somebody repeats."""

SIGNED = (
    "content-encoding", "content-language", "content-length", "content-md5", "content-type", "date",
    "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range",
)  # fmt: skip
_SPACES = re.compile(r"\s+")


def account_of(authorization: str) -> tuple[str, bytes] | None:
    """The account and the signature that a request shows; None: it shows none that can be read."""
    scheme, _, rest = authorization.partition(" ")
    account, _, signature = rest.strip().partition(":")
    if scheme != SCHEME or not account:
        return None
    try:
        return account, base64.b64decode(signature, validate=True)
    except binascii.Error:
        return None


def is_fresh(headers: Mapping[str, str]) -> bool:
    """Tell whether the request was signed a short while ago."""
    said = headers.get("x-ms-date") or headers.get("date") or ""
    try:
        at = email.utils.parsedate_to_datetime(said)
    except ValueError:
        return False
    return abs(at.timestamp() - time.time()) <= MAX_SKEW_S


def text_to_sign(method: str, headers: Mapping[str, str], account: str, path: str, query: str) -> str:
    """The text that a client signs. `headers`: names in lower case; `path`, `query`: as they came on the wire."""
    values = [headers.get(name, "") for name in SIGNED]
    length = SIGNED.index("content-length")
    if values[length] == "0":
        values[length] = ""
    if "x-ms-date" in headers:
        values[SIGNED.index("date")] = ""
    own = sorted((name, value) for name, value in headers.items() if name.startswith("x-ms-"))
    lines = [method, *values, *(f"{name}:{_SPACES.sub(' ', value).strip()}" for name, value in own)]
    asked: dict[str, list[str]] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        asked.setdefault(name.lower(), []).append(value)
    resource = [f"/{account}{path}", *(f"{name}:{','.join(sorted(values))}" for name, values in sorted(asked.items()))]
    return "\n".join([*lines, *resource])


def is_signed(key: str, signature: bytes, text: str) -> bool:
    """Tell whether the key made the signature. A key that is no base64 signs nothing."""
    try:
        secret = base64.b64decode(key, validate=True)
    except binascii.Error:
        return False
    return hmac.compare_digest(hmac.digest(secret, text.encode(errors="surrogateescape"), hashlib.sha256), signature)
