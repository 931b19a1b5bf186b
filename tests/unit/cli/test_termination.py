"""A command that owns processes cleans up when it is terminated, whoever has started it, and how."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, signal, sys
from holdfast.cli.shared.command_frame import run, terminate_like_interrupt

signal.signal(signal.SIGINT, signal.{sigint})
terminate_like_interrupt()

async def work():
    try:
        print("at work", flush=True)
        await asyncio.sleep(600)
    finally:
        print("cleaned up", flush=True)

{call}
"""


@pytest.mark.parametrize("call", ["asyncio.run(work())", "run(work())"])
@pytest.mark.parametrize("sigint", ["SIG_IGN", "default_int_handler"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_is_cancelled_also_where_ctrl_c_is_not_heard(sigint: str, call: str, number: int) -> None:
    program = PROGRAM.format(sigint=sigint, call=call)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"at work\n"
            process.send_signal(number)
            said, _ = process.communicate(timeout=120)
        finally:
            process.kill()
    assert said == b"cleaned up\n"
    assert process.returncode == -signal.SIGINT
