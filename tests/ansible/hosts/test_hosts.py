"""The test's own hosts are gone with the test, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest

from tests.ansible.hosts.network import missing
from tests.ansible.playbooks import ROOT
from tests.integration.clusters.cluster import wait_until

HOLD = """
import sys
from pathlib import Path
from tests.ansible.hosts.network import HostNetwork
network = HostNetwork(Path(sys.argv[1]), 1)
network.start()
network.control.run("sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &")  # a daemon, such as ssh leaves one
print(network.hosts[0].ssh("hostname").stdout, end="", flush=True)
sys.stdin.read()
"""
KINDS = ("net", "mnt", "pid", "uts")


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda blow: blow.name)
def test_nothing_is_left_of_hosts_whose_test_was_interrupted(tmp_path: Path, blow: signal.Signals) -> None:
    test = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert test.stdout is not None
    assert test.stdout.readline() == "n1\n"
    family = psutil.Process(test.pid).children(recursive=True)
    assert {"sshd", "sleep"} <= names(family)
    held = namespaces(family) - namespaces([psutil.Process()])
    assert len(held) == len(KINDS) * 4, "of the switch, the control host, the client and n1"
    test.send_signal(blow)
    test.communicate()
    wait_until(lambda: not any(process.is_running() for process in family), "the end of every process")
    wait_until(lambda: not held & namespaces(psutil.process_iter()), "the end of every namespace")
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


def names(processes: Iterable[psutil.Process]) -> set[str]:
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # sshd's child for the login that just ended
            found.add(process.name())
    return found


def namespaces(processes: Iterable[psutil.Process]) -> set[str]:
    found = set()
    for process in processes:
        for kind in KINDS:
            try:
                found.add(os.readlink(f"/proc/{process.pid}/ns/{kind}"))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # gone meanwhile, or of a sandbox around this machine: not ours in any case
    return found
