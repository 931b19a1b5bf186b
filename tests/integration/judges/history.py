"""What producers saw against what the log holds: the judgement of every test that kills, pauses or cuts something.

A body is `producer:number`. Per producer and partition it must hold that
 - every acknowledged number is there;
 - first copies come in the order of their numbers;
 - only numbers that were sent more than once are there more than once;
 - nothing is there that was never sent.
An empty history proves nothing, so it fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field


@dataclass
class Sent:
    """One producer's side of the story, for one partition."""

    producer: str
    numbers: int = 0  # 0 .. numbers-1 were sent
    acknowledged: set[int] = field(default_factory=set)
    resent: set[int] = field(default_factory=set)

    def body(self, number: int) -> str:
        return f"{self.producer}:{number}"


def number_in(body: str, producer: str) -> int:
    name, _, number = body.rpartition(":")
    assert name == producer, f"an event of somebody else: {body!r}, expected {producer}:<number>"
    return int(number)


def check(sent: Sent, bodies: Sequence[str], copies_allowed: Collection[int] | None = None) -> int:
    """Raises AssertionError with the first violations; the number of copies otherwise.

    `copies_allowed`: instead of `sent.resent`, when the producer does not tell which ones it resent.
    """
    assert sent.acknowledged, f"{sent.producer}: nothing was acknowledged, so nothing is proven"
    numbers = [number_in(body, sent.producer) for body in bodies]
    lost = sorted(sent.acknowledged - set(numbers))
    assert not lost, f"{sent.producer}: {len(lost)} acknowledged events are lost, the first: {lost[:10]}"
    strangers = sorted(number for number in set(numbers) if not 0 <= number < sent.numbers)
    assert not strangers, f"{sent.producer}: never sent, but there: {strangers[:10]}"
    seen: set[int] = set()
    last = -1
    for place, number in enumerate(numbers):
        if number in seen:
            continue
        assert number > last, f"{sent.producer}: order broken at place {place}: {number} comes first after {last}"
        seen.add(number)
        last = number
    copies = {number for number, count in Counter(numbers).items() if count > 1}
    unasked = sorted(copies - set(sent.resent if copies_allowed is None else copies_allowed))
    assert not unasked, f"{sent.producer}: sent once, stored more than once: {unasked[:10]}"
    return len(numbers) - len(seen)
