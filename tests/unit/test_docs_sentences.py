"""Sentences of the README and the pages are short: at most 35 words, and 18 on average.

Counted are paragraphs and items of lists. Tables, headings and blocks of code are not prose; pages that are made from
the source are judged where their words stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.docs.reference import PAGES as MADE

ROOT = Path(__file__).parents[2]
MOST_WORDS = 35
MEAN_WORDS = 18.0
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(ROOT.glob("docs/**/*.md"))]
    if path.relative_to(ROOT).as_posix() not in MADE
]
END = re.compile(r"(?<=[.!?])[\"')*_`]*\s+(?=[\"'(\[*_`]*[A-Z0-9`$])")


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs and items of lists, each as one line."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->|^(?:#|\||!\[| {4})[^\n]*$", "", text, flags=re.DOTALL | re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n|^\s*(?:-|\d+\.) ", text, flags=re.MULTILINE):
        yield " ".join(paragraph.split())


def sentences(text: str) -> list[str]:
    return [sentence for paragraph in paragraphs(text) for sentence in END.split(paragraph) if words(sentence)]


def words(sentence: str) -> int:
    """How many there are: code in backticks is one, a link is its text."""
    text = re.sub(r"`[^`]+`", "code", sentence)
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
    return sum(any(character.isalnum() for character in word) for word in text.split())


@pytest.mark.parametrize("page", PAGES)
def test_no_sentence_is_long(page: str) -> None:
    found = sentences((ROOT / page).read_text(encoding="utf-8"))
    long = [f"{words(sentence)}: {sentence}" for sentence in found if words(sentence) > MOST_WORDS]
    assert not long, "\n".join(long)


def test_sentences_are_short_on_average() -> None:
    found = [words(one) for page in PAGES for one in sentences((ROOT / page).read_text(encoding="utf-8"))]
    assert sum(found) / len(found) <= MEAN_WORDS


def test_words_and_sentences_are_counted() -> None:
    text = (
        "# Not this one\n\nOne `a.b.c()` here. Two more\nwords, [a link](to/somewhere.md) too!\n\n- item\n- item two\n"
    )
    assert [words(one) for one in sentences(text)] == [3, 6, 1, 2]
