"""Features and layouts: what a node may use, and since when."""

from __future__ import annotations

import pytest

from cluster import features
from cluster.features import Features
from cluster.versions import UNSET, Layouts, VersionRange

BOTH = VersionRange(14, 15)


def test_a_feature_is_active_from_its_version_on_and_no_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "FEATURES", {"notes": 15, "old": 14})
    ours = Features(BOTH)
    assert (ours.heard, ours.version) == (UNSET, 14)
    assert [ours.active("old"), ours.active("notes")] == [True, False], "nothing heard of: the oldest"
    ours.rise(14)
    assert not ours.active("notes")
    ours.rise(15)
    assert ours.active("notes")
    ours.rise(14)
    assert ours.active("notes"), "it never falls"
    with pytest.raises(KeyError):
        ours.active("no such feature")


def test_what_must_come_first_comes_first_and_may_keep_it_from_rising() -> None:
    ours, seen = Features(BOTH), []
    ours.on_rise.append(lambda version: seen.append((version, ours.version)))
    ours.rise(14)
    ours.rise(15)
    ours.rise(15)
    assert seen == [(14, 14), (15, 14)]

    def full(_: int) -> None:
        raise OSError("no space left")

    kept = Features(BOTH)
    kept.on_rise.append(full)
    with pytest.raises(OSError, match="no space"):
        kept.rise(15)
    assert kept.version == 14


def test_a_version_that_the_program_does_not_know_is_never_used() -> None:
    ours = Features(BOTH)
    ours.rise(16)
    assert ours.version == 14


def test_layouts_are_written_as_of_the_active_version_and_read_all() -> None:
    layouts = Layouts({14: 7, 16: 8})
    assert [layouts.at(version) for version in (UNSET, 14, 15, 16, 17)] == [7, 7, 7, 8, 8]
    assert 7 in layouts
    assert 8 in layouts
    assert 9 not in layouts
    assert str(layouts) == "7 and 8"
