"""Attacks and nonsense against a real node, beside an honest producer that must not lose anything by it.

`HOLDFAST_ATTACKS=1`: each attack for 30 s, and the honest producer's times are judged; `HOLDFAST_FUZZ_SECONDS=3600`:
nonsense for an hour.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import time
import urllib.request

import pytest

from holdfast.cli.local_cluster import child_processes
from tests.attacks.measure import fill, honest, p99, words
from tests.attacks.table import ATTACKS
from tests.integration.attacks.conftest import AttackTarget
from tests.integration.conftest import number_from

LONG = bool(os.environ.get("HOLDFAST_ATTACKS"))
MEMORY_MIB = 400
TURN_S = 0.05
SLOWER = 10
"""An honest producer's p99 beside an attack, in times its own without one."""

IDLE_SOCKETS = 40
FUZZ_COUNT = 120


def stored(target: AttackTarget) -> int:
    """The honest producer's events in the log, and nothing else is in it."""
    latest = target.cluster.info("honest")["0"].latest_offset
    return 0 if latest is None else int(latest, 16) + 1


@pytest.mark.parametrize("name", list(ATTACKS) if LONG else ["all"])
def test_an_attack_hurts_nobody_else(target: AttackTarget, name: str) -> None:
    seconds = 30.0 if LONG else 0.7
    asyncio.run(fill(target.port, "target", 20_000 if LONG else 4000))
    alone = asyncio.run(honest(target.port, "honest", 5.0 if LONG else 0.5))
    before = stored(target)
    attack = child_processes.spawn(
        words(name, target.port, seconds, "target"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    attacks = len(ATTACKS) if name == "all" else 1
    took = asyncio.run(honest(target.port, "honest", seconds * attacks))
    said, _ = attack.communicate(timeout=600)
    assert attack.returncode == 0, said.decode()
    assert stored(target) == before + len(took)
    assert target.memory_mib() < MEMORY_MIB
    turn_s = target.metric("holdfast_loop_longest_turn_seconds")
    if LONG:  # the machine may have been busier before than it is now: what it was at its best counts
        alone = min(alone, asyncio.run(honest(target.port, "honest", 5.0)), key=p99)
    ratio = p99(took) / p99(alone)
    print(f"{name}: honest p99 {p99(alone):.1f} -> {p99(took):.1f} ms ({ratio:.1f} times), longest turn {turn_s:.3f} s")
    assert len(took) > 10
    if LONG:
        assert ratio < SLOWER
        assert turn_s < TURN_S


def test_idle_sockets_do_not_keep_a_supervisor_out(target: AttackTarget) -> None:
    async def ask() -> None:
        idle = [await asyncio.open_connection("127.0.0.1", target.http_port) for _ in range(IDLE_SOCKETS)]
        for path in ("/health/live", "/metrics"):
            assert await asyncio.to_thread(target.page, path)
        for _, writer in idle:
            writer.close()

    asyncio.run(ask())


def test_nonsense_on_every_port_ends_in_nothing(target: AttackTarget) -> None:
    seconds = number_from("HOLDFAST_FUZZ_SECONDS", 0)
    seed = number_from("HOLDFAST_SEED", 1)
    ports = (target.port, target.rpc_port, target.http_port, target.proxied_port)
    until_s = time.monotonic() + seconds
    base: int | None = None
    for first in itertools.count(seed, FUZZ_COUNT):
        before = stored(target)
        fuzz = target.beside("tests.attacks.fuzz", first, FUZZ_COUNT, *ports)
        took = asyncio.run(honest(target.port, "honest", 1.0))
        said, _ = fuzz.communicate(timeout=600)
        assert fuzz.returncode == 0, f"seeds from {first}: {said.decode()}"
        assert stored(target) == before + len(took), f"seeds from {first}"
        assert target.cluster.running == [1], f"seeds from {first}"
        base = base or target.memory_mib()
        assert target.memory_mib() < MEMORY_MIB, f"seeds from {first}: it had {base} MiB"
        if seconds:
            assert target.metric("holdfast_loop_longest_turn_seconds") < TURN_S, f"seeds from {first}"
        if time.monotonic() >= until_s:
            print(f"conversations {seed} to {first + FUZZ_COUNT - 1}; at most {target.memory_mib()} MiB, first {base}")
            break
    with urllib.request.urlopen(f"http://127.0.0.1:{target.http_port}/health/ready", timeout=60) as page:
        assert page.status == 200
