"""The options of writing: read once, on the driver, each wrong one refused with one sentence.

Rule never broken: an option is obeyed or refused, as with reading. What Spark itself adds for a stream is let through,
except what would make a batch another one when it is done again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.client import Security
from holdfast.spark import login
from holdfast.spark.errors import OptionError
from holdfast.spark.options import check_known, lowered, positive, required

NAMES: Final = (
    *("servers", "log", "guarantee", "writerId", "batchId"),
    *("leaseSeconds", "groupTimeoutSeconds", "timeoutSeconds"),
    *login.NAMES,
)
GROUP_ONLY: Final = ("writerId", "batchId", "leaseSeconds", "groupTimeoutSeconds")
ASYNC_PROGRESS: Final = "asyncprogresstracking"

OF_SPARK: Final = ("checkpointlocation", "queryname", ASYNC_PROGRESS)
"""Options of a stream for Spark itself, which shows them to the sink."""

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"

LEASE_S: Final = 30
MIN_LEASE_S, MAX_LEASE_S = 2, 300
GROUP_TIMEOUT_S: Final = 900
MAX_GROUP_TIMEOUT_S: Final = 4 * 3600
"""Limit of the nodes."""

MAX_WRITER_CHARACTERS: Final = 128
"""The name that the nodes know holds the log's as well, in 256 characters."""


@dataclass(frozen=True)
class SinkOptions:
    """Options of a sink. `batch`: of a batch write whose writer has a name; a stream's are numbered by Spark."""

    servers: str
    log: str
    exactly_once: bool = True
    writer: str | None = None
    batch: int | None = None
    lease_s: float = float(LEASE_S)
    group_timeout_s: float = float(GROUP_TIMEOUT_S)
    timeout_s: float = 60.0
    security: Security = field(default_factory=Security)


def parse(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Parse the options of a sink. Raises OptionError."""
    texts = lowered(given)
    if streaming:
        _check_progress(texts)
        texts = {name: value for name, value in texts.items() if not name.startswith(OF_SPARK)}
    security = login.security_of(texts)
    check_known(texts, NAMES)
    guarantee = texts.get("guarantee", EXACTLY_ONCE)
    if guarantee not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        raise OptionError(f"option guarantee is {EXACTLY_ONCE!r} or {AT_LEAST_ONCE!r}, not {guarantee!r}")
    if guarantee == AT_LEAST_ONCE:
        for name in GROUP_ONLY:
            if name.lower() in texts:
                raise OptionError(f"option {name} means nothing with the guarantee {AT_LEAST_ONCE!r}")
    writer = _writer(texts)
    return SinkOptions(
        servers=required(texts, "servers"),
        log=required(texts, "log"),
        exactly_once=guarantee == EXACTLY_ONCE,
        writer=writer,
        batch=_batch(texts, writer, streaming),
        lease_s=float(_between(texts, "leaseSeconds", MIN_LEASE_S, MAX_LEASE_S) or LEASE_S),
        group_timeout_s=float(_between(texts, "groupTimeoutSeconds", 1, MAX_GROUP_TIMEOUT_S) or GROUP_TIMEOUT_S),
        timeout_s=float(positive(texts, "timeoutSeconds") or 60),
        security=security,
    )


def _check_progress(texts: Mapping[str, str]) -> None:
    for name, value in texts.items():
        if name.startswith(ASYNC_PROGRESS) and value.lower() != "false":
            raise OptionError(
                "asynchronous progress tracking is not possible: a batch that is done again may be another one",
                advice="leave out asyncProgressTrackingEnabled",
            )


def _writer(texts: Mapping[str, str]) -> str | None:
    writer = texts.get("writerid")
    if writer is None:
        return None
    if not 0 < len(writer.strip()) <= MAX_WRITER_CHARACTERS or writer.startswith("$"):
        raise OptionError(
            f"option writerId has 1 to {MAX_WRITER_CHARACTERS} characters, and no dollar sign in front, not {writer!r}"
        )
    return writer.strip()


def _batch(texts: Mapping[str, str], writer: str | None, streaming: bool) -> int | None:
    text = texts.get("batchid")
    if streaming:
        if text is not None:
            raise OptionError("option batchId is for batch writes: Spark numbers the batches of a stream")
        return None
    if (text is None) != (writer is None):
        raise OptionError(
            "a batch write has the options writerId and batchId, or none of them: together they say which batch it is",
            advice="give both; in foreachBatch, batchId is the number that Spark hands over",
        )
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) >= 1 << 63:
        raise OptionError(f"option batchId is a whole number from 0 on, not {text!r}")
    return int(text)


def _between(texts: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    found = positive(texts, name)
    if found is not None and not least <= found <= most:
        raise OptionError(f"option {name} is {least} to {most} seconds, not {found}")
    return found
