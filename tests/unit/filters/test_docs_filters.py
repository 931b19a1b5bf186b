"""The examples of docs/clients/filters.md pass the events that the page says, and no others."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from node.filters import parse
from node.filters.functions import date_ms
from tests.unit.filters.messages import message

PAGE = Path(__file__).parents[3] / "docs" / "clients" / "filters.md"
TEN = PAGE.read_text(encoding="utf-8").split("## Ten examples")[1].split("\n## ")[0]
EXAMPLES = re.findall(r"^\| `([^`]+)` \|", TEN, re.MULTILINE)
TIME_MS = date_ms("2026-11-20T10:30:00Z") or 0


@dataclass
class OneEvent:
    """An event that all examples pass, but for what is said otherwise."""

    key: str = "ann"
    properties: dict[str, Any] = field(
        default_factory=lambda: {"total": 900, "order-status": "paid", "coupon": "X", "country": "DE", "express": True}
    )
    subject: str = "Invoice"
    partition: str = "2"
    offset: int = 256
    time_ms: int = TIME_MS
    body: bytes = b"an error happened"

    def passes(self, condition: str) -> bool:
        found = parse(condition, event_fields=True)
        bounds = found.bounds(1000)
        sections = {
            "m": {"event-streams-group-key": self.key},
            "p": {"subject": self.subject},
            "a": self.properties,
        }
        data = message(sections, self.body)
        return (
            bounds.first_offset <= self.offset < bounds.end_offset
            and bounds.first_ms <= self.time_ms < bounds.end_ms
            and bool(found.matching(self.offset, self.time_ms, [data], self.partition, 0, 1000))
        )


OTHERS = [
    OneEvent(key="dan"),
    OneEvent(properties={"total": 800}),
    OneEvent(properties={"order-status": "open"}),
    OneEvent(properties={"total": 84, "express": False}),
    OneEvent(key="client-1"),
    OneEvent(properties={"coupon": "X"}),
    OneEvent(subject="Order"),
    OneEvent(offset=255),
    OneEvent(time_ms=TIME_MS + 1_800_000),
    OneEvent(key="test"),
]
"""For each example an event that it does not pass."""


def test_there_are_ten() -> None:
    assert len(EXAMPLES) == len(OTHERS) == 10


@pytest.mark.parametrize(("example", "other"), list(zip(EXAMPLES, OTHERS, strict=False)))
def test_an_example_passes_what_it_says(example: str, other: OneEvent) -> None:
    assert OneEvent(key="customer-7" if "customer" in example else "ann").passes(example)
    assert not other.passes(example)
