"""Commands where no server answers: a person is warned while it lasts, and a program reads one document."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.ports import free_port


def refused(*more: str) -> str:
    command = [sys.executable, "-m", "holdfast.cli", "log", "list", "--server", f"amqp://127.0.0.1:{free_port()}"]
    done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (4, "")
    return done.stderr


def test_a_person_is_warned_before_the_command_gives_up() -> None:
    warned, failed, *_ = refused().splitlines()
    assert warned.startswith("warning: log list: still trying after 1 s: 127.0.0.1:")
    assert failed.startswith("error: 127.0.0.1:")


def test_a_program_reads_the_error_alone() -> None:
    assert json.loads(refused("--json"))["exit_status"] == 4
