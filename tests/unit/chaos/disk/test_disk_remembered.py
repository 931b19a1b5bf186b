"""What a node remembers of its cluster is there after a loss of power at any call, or was never remembered."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from chaos.disk import FaultyDisk

ROOT = Path(__file__).resolve().parents[4]

REMEMBER = """
import os
from pathlib import Path
from cluster.discovery import RememberedCluster
from node.storage.fsync import make_directory
home = Path(os.environ["HOLDFAST_DISK_ROOT"]) / "deep" / "data"
make_directory(home)
memory = RememberedCluster(home)
if memory.cluster is None:
    print("new", flush=True)
    memory.remember("c", {1: "a:1"})
print("remembered", memory.cluster["id"], flush=True)
os._exit(0)
"""


def test_what_is_remembered_is_there_after_a_loss_of_power_at_any_call(disk: FaultyDisk) -> None:
    def remember() -> str:
        environment = {**os.environ, **disk.environment()}
        done = subprocess.run(
            [sys.executable, "-c", REMEMBER], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode in (0, -9), done.stderr
        return done.stdout

    for number in range(1, 20):
        order = disk.orders.kill_at("sync-directory", "*", number)
        said = remember()
        disk.orders.withdraw(order)
        disk.lose_power()
        if "remembered" in said:
            break
        assert said in ("", "new\n")
    assert number > 3
    assert remember() == "remembered c\n"
