"""The options of the data source: read once, on the driver, each wrong one refused with one sentence.

Rule never broken: an option is obeyed or refused. Spark hands options over with lower-case keys and text values, and
says nothing of those that nobody reads; a misspelt `startingOfsets` would read the whole log.
Names and values are those of Spark's Kafka source where it has the same thing.
"""

from __future__ import annotations

import datetime
import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.client import Security
from holdfast.spark import login
from holdfast.spark.errors import OptionError
from holdfast.spark.offsets import EARLIEST, LATEST, Place, Places
from holdfast.spark.schema import COLUMNS

NAMES: Final = (
    "servers",
    "log",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "isolation",
    "filter",
    "columns",
    "partitions",
    "minPartitions",
    "maxEventsPerTrigger",
    "maxBytesPerTrigger",
    "failOnDataLoss",
    "timeoutSeconds",
    *login.NAMES,
)
BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp")
STREAM_ONLY: Final = ("maxEventsPerTrigger", "maxBytesPerTrigger")

_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_KAFKA_NUMBERS: Final = {-2: EARLIEST, -1: LATEST}  # as in Kafka's JSON


@dataclass(frozen=True)
class SourceOptions:
    """Options of a source. `start` and `end` None: as the kind of reading has it (earliest to latest; from now on)."""

    servers: str
    log: str
    start: Places | None = None
    end: Places | None = None
    uncommitted: bool = False
    filter: str | None = None
    columns: tuple[str, ...] = COLUMNS
    partitions: tuple[str, ...] | None = None
    min_partitions: int | None = None
    max_events: int | None = None
    max_bytes: int | None = None
    fail_on_data_loss: bool = True
    timeout_s: float = 30.0
    security: Security = field(default_factory=Security)


def columns_of(given: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that are asked for, in their order; all if none are."""
    text = lowered(given).get("columns")
    return COLUMNS if text is None else _columns(text)


def parse(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Parse the options of a source. Raises OptionError."""
    texts = lowered(given)
    security = login.security_of(texts)
    _check_names(texts, streaming)
    isolation = texts.get("isolation", "committed")
    if isolation not in ("committed", "uncommitted"):
        raise OptionError(f"option isolation is 'committed' or 'uncommitted', not {isolation!r}")
    where = texts.get("filter")
    if where is not None and not where.strip():
        raise OptionError("option filter is empty: leave it out to read all events")
    return SourceOptions(
        servers=required(texts, "servers"),
        log=required(texts, "log"),
        start=_places(texts, "startingOffsets", "startingTimestamp"),
        end=_places(texts, "endingOffsets", "endingTimestamp"),
        uncommitted=isolation == "uncommitted",
        filter=where,
        columns=columns_of(given),
        partitions=_partitions(texts.get("partitions")),
        min_partitions=positive(texts, "minPartitions"),
        max_events=positive(texts, "maxEventsPerTrigger"),
        max_bytes=positive(texts, "maxBytesPerTrigger"),
        fail_on_data_loss=_boolean(texts, "failOnDataLoss", True),
        timeout_s=float(positive(texts, "timeoutSeconds") or 30),
        security=security,
    )


def lowered(given: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in given.items()}


def check_known(texts: Mapping[str, str], names: tuple[str, ...]) -> None:
    """Raise OptionError for an option that is not among the names."""
    known = {name.lower(): name for name in names}
    for name in texts:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            meant = f"did you mean {known[close[0]]}?" if close else f"there are {', '.join(names)}"
            raise OptionError(f"there is no option {name!r}: {meant}")


def _check_names(texts: Mapping[str, str], streaming: bool) -> None:
    check_known(texts, NAMES)
    for name in BATCH_ONLY if streaming else STREAM_ONLY:
        if name.lower() in texts:
            kind, other = ("a stream", "spark.read") if streaming else ("a batch", "spark.readStream")
            raise OptionError(f"option {name} means nothing to {kind}: it is for {other}")


def required(texts: Mapping[str, str], name: str) -> str:
    value = texts.get(name, "").strip()
    if not value:
        raise OptionError(f"option {name} is missing", advice=f'add .option("{name}", ...)')
    return value


def positive(texts: Mapping[str, str], name: str) -> int | None:
    text = texts.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < 1:
        raise OptionError(f"option {name} is a whole number from 1 on, not {text!r}")
    return int(text)


def _boolean(texts: Mapping[str, str], name: str, default: bool) -> bool:
    text = texts.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise OptionError(f"option {name} is true or false, not {text!r}")
    return text.lower() == "true"


def _columns(text: str) -> tuple[str, ...]:
    known = {name.lower(): name for name in COLUMNS}
    wanted = [name.strip() for name in text.split(",")]
    for name in wanted:
        if name.lower() not in known:
            raise OptionError(f"option columns names {name!r}: there are {', '.join(COLUMNS)}")
    found = tuple(known[name.lower()] for name in wanted)
    if len(set(found)) != len(found):
        raise OptionError(f"option columns names a column twice: {text!r}")
    return found


def _partitions(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise OptionError(f"option partitions is a list such as 0,2,5, each once, not {text!r}")
    return names


# ---------------------------------------------------------------- places


def _places(texts: Mapping[str, str], offsets: str, timestamp: str) -> Places | None:
    by_offset, by_time = texts.get(offsets.lower()), texts.get(timestamp.lower())
    if by_offset is not None and by_time is not None:
        raise OptionError(f"options {offsets} and {timestamp} contradict each other: give one of them")
    if by_time is not None:
        return Places(every=Place(timestamp_ms=_time_ms(timestamp, by_time)))
    if by_offset is None:
        return None
    if (word := by_offset.strip().lower()) in _WORDS:
        return Places(every=_WORDS[word])
    return Places(of=_by_partition(offsets, by_offset))


def _by_partition(name: str, text: str) -> dict[str, Place]:
    wrong = OptionError(
        f"option {name} is earliest, latest, or an offset for each partition such as "
        f'{{"0": 120, "1": -2}} (-2: earliest, -1: latest), not {text!r}'
    )
    try:
        found = json.loads(text)
    except ValueError:
        raise wrong from None
    if not isinstance(found, dict) or not found:
        raise wrong
    places = {}
    for partition, offset in found.items():
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < -2:
            raise wrong
        places[partition] = _KAFKA_NUMBERS.get(offset) or Place(offset=offset)
    return places


def _time_ms(name: str, text: str) -> int:
    if text.strip().isdecimal():
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        raise OptionError(
            f"option {name} is milliseconds since 1970, or a time such as 2013-10-07T14:30:00Z, not {text!r}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    found = moment.timestamp() * 1000
    if found < 0:
        raise OptionError(f"option {name} is not before 1970: {text!r}")
    return int(found)
