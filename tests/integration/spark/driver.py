"""A driver of Spark as a process of its own, which a test may kill, and start again from its checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from holdfast.cli.local_cluster import child_processes
from tests.integration.clusters.cluster import wait_until
from tests.integration.spark.session import ROOT, environment

LOG_TAIL_CHARACTERS = 5000
WITHIN_S = 600.0

SLOW_PYTHON = "Timed out while waiting for the Python worker to connect back"
"""Spark gives a Python process ten seconds to start, and no setting changes that. A machine whose disk is busy takes
longer at times; the job ends, and whoever watches it starts it again from its checkpoint."""

MOST_SLOW_STARTS = 3


class Driver:
    """`python -m ARGUMENTS`. In a process group of its own, with its Java."""

    def __init__(self, arguments: list[str], directory: Path, more: Mapping[str, str] | None = None) -> None:
        self._arguments, self._log = arguments, directory / "driver.log"
        self._environment = {**os.environ, **environment(directory), **(more or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._more: tuple[str, ...] = ()
        self._slow_starts = 0

    def start(self, *more: str) -> None:
        """With these arguments besides."""
        assert self._process is None, "it runs already"
        self._more = more
        self._said_before = len(self.said())
        command = [sys.executable, "-m", *self._arguments, *more]
        with self._log.open("ab") as output:
            self._process = child_processes.spawn(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=ROOT, env=self._environment,
                start_new_session=True,
            )  # fmt: skip

    def has_ended(self) -> bool:
        """Raises if it has failed."""
        assert self._process is not None
        status = self._process.poll()
        if status and SLOW_PYTHON in self.said()[self._said_before :] and self._slow_starts < MOST_SLOW_STARTS:
            self._slow_starts += 1
            self._process = None
            self.start(*self._more)
            return False
        assert status in (None, 0), f"the driver ended with status {status}: {self.said()[-LOG_TAIL_CHARACTERS:]}"
        return status == 0

    def wait(self) -> None:
        """Until it has done its work."""
        assert self._process is not None
        wait_until(self.has_ended, "the driver to end", WITHIN_S)
        self._process = None

    def kill(self) -> None:
        """kill -9, if it runs."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def said(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""
