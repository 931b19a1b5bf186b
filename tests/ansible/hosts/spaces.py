"""Namespaces that live as long as a process that holds them, and it as long as the test.

The problem: a test that makes networks, mounts and daemons may be stopped anywhere, also by a signal that it cannot
answer. The rule: nothing has a name in the system (no /run/netns, no mount outside of a namespace), everything hangs on
a process that the kernel kills with its parent; with it goes its process namespace, and so whoever runs in it, and its
network and mounts. The alternative, named namespaces and a clean-up afterwards, leaves them whenever the clean-up does
not run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from holdfast.cli.local_cluster import child_processes
from tests.integration.clusters.cluster import wait_until

PYTHON = str(Path(sys.executable).resolve())
IDLE = "read -r _ || true; exec sleep infinity"


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


class Space:
    """A network, process, mount and host name of its own; first runs `boot`, a shell script, when it is released.

    Between `Space()` and `release()` its network can be made; `boot` begins with reading a line."""

    def __init__(self, boot: str = IDLE, console: int | IO[bytes] = subprocess.DEVNULL) -> None:
        self._process = child_processes.spawn(
            ["unshare", "--net", "--mount-proc", "--pid", "--fork", "--uts",
             "--kill-child=KILL", "sh", "-c", boot],
            stdin=subprocess.PIPE, stdout=console, stderr=console,
        )  # fmt: skip
        wait_until(self._apart, "namespaces of its own")
        self.ip("link", "set", "lo", "up")

    @property
    def pid(self) -> int:
        return self._process.pid

    def _apart(self) -> bool:
        """Whether it has them all. That of processes can be entered when its first process is there."""
        assert self.alive, "unshare ended: see its console"
        try:
            return all(
                os.stat(f"/proc/{self.pid}/ns/{kind}").st_ino != os.stat(f"/proc/self/ns/{kind}").st_ino
                for kind in ("net", "mnt", "uts", "pid_for_children")
            )
        except FileNotFoundError:
            return False

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def release(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.close()

    def ip(self, *arguments: str) -> str:
        return run("nsenter", f"--net=/proc/{self.pid}/ns/net", "ip", *arguments)

    def command(self, *command: str) -> list[str]:
        """How to run it in here; it ends with whoever started it."""
        ours = f"/proc/{self.pid}/ns"
        return [
            "nsenter", f"--net={ours}/net", f"--uts={ours}/uts", f"--mount={ours}/mnt", "--wd=.",
            f"--pid={ours}/pid_for_children", PYTHON, "-c", child_processes.BECOME, *command,
        ]  # fmt: skip

    def run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """`more` goes into its environment."""
        return subprocess.run(
            self.command(*command), capture_output=True, text=True, check=False, env={**os.environ, **more}
        )

    def end(self) -> None:
        """As by pulling its plug: every process in it is gone at once."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


class Switch:
    """Ethernet segments, each a bridge in a namespace that has no address."""

    def __init__(self, segments: Sequence[str]) -> None:
        self._space = Space()
        self._space.release()
        for segment in segments:
            self._space.ip("link", "add", segment, "type", "bridge")
            self._space.ip("link", "set", segment, "up")

    def plug(self, space: Space, port: str, segment: str, address: str) -> None:
        """A cable from the segment to the space, where its interface has the segment's name. A cable that was in this
        port is pulled first: the kernel needs a while to notice that its other end is gone."""
        if port in self._space.ip("-brief", "link"):
            self._space.ip("link", "del", port)
        self._space.ip("link", "add", port, "type", "veth", "peer", "name", segment, "netns", str(space.pid))
        self._space.ip("link", "set", port, "master", segment, "up")
        space.ip("address", "add", f"{address}/24", "dev", segment)
        space.ip("link", "set", segment, "up")

    def end(self) -> None:
        self._space.end()
