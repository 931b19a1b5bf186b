"""What a test that failed left running ends before the next test begins."""

from __future__ import annotations

import threading

import pytest

from tests.integration.workloads.beside import Beside, end_all


class Waiting(Beside):
    """Goes on until it is let go."""

    def _main(self) -> None:
        self._over.wait()


class Failing(Beside):
    def _main(self) -> None:
        raise ConnectionError("the node is gone")


def test_what_nobody_ended_is_ended_with_the_test() -> None:
    waiting = Waiting("left behind").begin()
    assert waiting._thread in threading.enumerate()
    end_all()
    assert waiting._thread not in threading.enumerate()
    waiting.join()


def test_what_went_wrong_beside_the_test_is_raised_by_who_waits_for_it() -> None:
    failing = Failing("fails").begin()
    with pytest.raises(ConnectionError, match="gone"):
        failing.join()
    end_all()
