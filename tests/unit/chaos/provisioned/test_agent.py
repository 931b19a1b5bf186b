"""What an agent does to a node it undoes, however it comes to its end. Its node here is a process that waits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.cluster.provisioned.on_host import agent
from chaos.cluster.provisioned.on_host.guard import born
from chaos.cluster.provisioned.on_host.lock import Lock, holder
from chaos.cluster.provisioned.on_host.services import Trouble
from chaos.cluster.provisioned.ssh import program
from node.config import HostAndPort
from node.monitoring.health import StartupState
from node.monitoring.http_server import MonitoringServer
from tests.integration.clusters.cluster import wait_until
from tests.ports import free_ports

ROOT = Path(__file__).resolve().parents[4]

PROGRAM = """
import os, subprocess, sys
from chaos.cluster.provisioned.on_host import agent, guard, services

agent_pid = os.getpid()

class Waiting(services.Manager):
    process = None
    def pid(self):  # a keeper is not its parent
        is_own = self.process is not None and os.getpid() == agent_pid
        if self.process is None or (is_own and self.process.poll() is not None) or guard.born(self.process.pid) is None:
            return 0
        return self.process.pid
    def kill(self):
        self.process.kill()
        self.process.wait()
    def stop(self):
        self.process.terminate()
        self.process.wait()
    def start(self):
        if not self.pid():
            self.process = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            with open("started", "a") as file:
                file.write(f"{self.process.pid}\\n")

agent.HOLDFAST = "./holdfast"
agent.SILENT_S = float(sys.argv[1])
waiting = Waiting()
waiting.start()
agent.serve(lambda: agent.Agent(waiting))
"""


class Told:
    """An agent at work, and what it is told."""

    def __init__(self, directory: Path, silent_s: float = 600.0) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(silent_s)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=directory, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    def order(self, name: str, /, **arguments: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"order": name, **arguments}).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    @property
    def started(self) -> list[int]:
        """Every process that was ever started for the node."""
        path = self.directory / "started"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def children(self) -> list[int]:
        """Guards and keepers that are left of it: whoever has its command."""
        found = []
        for one in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if PROGRAM.encode() in one.read_bytes() and os.readlink(one.parent / "cwd") == str(self.directory):
                    found.append(int(one.parent.name))
        return found

    def leave(self) -> int:
        """The connection ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(60)


def stands_still(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Told]]:
    made: list[Told] = []

    def one(**more: Any) -> Told:
        made.append(Told(tmp_path, **more))
        return made[-1]

    yield one
    for told in made:
        told.process.kill()
        told.process.wait()
        for stream in (told.process.stdin, told.process.stdout):
            assert stream is not None
            stream.close()
        for pid in (*told.children(), *told.started):
            if born(pid) is not None:
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def told(make: Callable[..., Told]) -> Told:
    return make()


def test_a_node_stands_still_and_goes_on(told: Told) -> None:
    pid = told.order("pause", bound_s=600.0)["ok"]
    wait_until(lambda: stands_still(pid), "the node to stand still")
    assert told.order("pause", bound_s=600.0) == {"ok": pid}, "once is enough"
    assert told.order("resume") == {"ok": None}
    wait_until(lambda: not stands_still(pid), "the node to go on")
    assert told.started == [pid]


def by_its_end(told: Told) -> None:
    assert told.leave() == 0


def by_being_asked_to_end(told: Told) -> None:
    told.process.terminate()
    assert told.process.wait(60) == 0


def by_being_killed(told: Told) -> None:
    told.process.kill()
    told.process.wait(60)


@pytest.mark.parametrize("ending", [by_its_end, by_being_asked_to_end, by_being_killed])
def test_a_node_that_stands_still_goes_on_when_its_agent_ends(told: Told, ending: Callable[[Told], None]) -> None:
    pid = told.order("pause", bound_s=600.0)["ok"]
    wait_until(lambda: stands_still(pid), "the node to stand still")
    ending(told)
    wait_until(lambda: not stands_still(pid), "the node to go on")


def test_a_node_that_stands_still_goes_on_though_its_agent_and_its_guard_are_killed(told: Told) -> None:
    pid = told.order("pause", bound_s=600.0)["ok"]
    wait_until(lambda: stands_still(pid), "the node to stand still")
    keeper, guard = sorted(set(told.children()) - {told.process.pid}, key=lambda one: (int(born(one) or 0), one))
    told.process.send_signal(signal.SIGSTOP)  # so that it does not hear of the guard's end
    os.kill(guard, signal.SIGSTOP)
    for one in (guard, told.process.pid):
        os.kill(one, signal.SIGKILL)
    wait_until(lambda: not stands_still(pid), "the node to go on")
    wait_until(lambda: born(keeper) is None, "the end of the keeper")


def test_a_node_stands_still_no_longer_than_its_bound(told: Told) -> None:
    pid = told.order("pause", bound_s=0.5)["ok"]
    wait_until(lambda: not stands_still(pid), "the node to go on")
    assert told.order("resume") == {"ok": None}


@pytest.mark.parametrize("how", ["kill", "stop"])
@pytest.mark.parametrize("ending", [by_its_end, by_being_asked_to_end, by_being_killed])
def test_a_node_that_was_ended_is_started_when_its_agent_ends(
    told: Told, how: str, ending: Callable[[Told], None]
) -> None:
    assert told.order(how) == {"ok": None}
    assert told.order("pid") == {"ok": 0}
    ending(told)
    wait_until(lambda: len(told.started) == 2, "the node to be started")
    first, second = told.started
    assert born(first) is None
    assert born(second) is not None


def test_nothing_is_done_by_a_keeper_where_nothing_is_to_be_undone(told: Told) -> None:
    told.order("kill")
    told.order("start")
    told.process.kill()
    told.process.wait(60)
    wait_until(lambda: told.children() == [], "the end of the keeper")
    assert len(told.started) == 2


def test_a_node_that_was_started_again_is_left_alone(told: Told) -> None:
    told.order("kill")
    pid = told.order("start")["ok"]
    assert told.leave() == 0
    assert told.started[-1] == pid
    assert len(told.started) == 2


def test_a_node_that_stands_still_can_be_killed(told: Told) -> None:
    pid = told.order("pause", bound_s=600.0)["ok"]
    assert told.order("kill") == {"ok": None}
    assert born(pid) is None


def test_silence_is_an_end(make: Callable[..., Told]) -> None:
    told = make(silent_s=1.0)
    told.order("kill")
    assert told.process.wait(60) == 0
    assert len(told.started) == 2


def has_a_command(told: Told, script: str) -> None:
    program = told.directory / "holdfast"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(("leads", "asked"), [(False, True), (True, False)])
def test_who_has_handed_over_may_lead_again_in_the_end(told: Told, leads: bool, asked: bool) -> None:
    has_a_command(told, 'echo "$@" >asked')
    told.order("drained", node=2, server="n2:5672", listener="default")
    if leads:
        told.order("leads")
    assert told.leave() == 0
    found = told.directory / "asked"
    assert found.exists() == asked
    assert not asked or found.read_text() == "node resume 2 --server n2:5672 --listener default\n"
    assert len(told.started) == 1


def test_who_has_handed_over_may_lead_again_when_its_agent_is_killed(told: Told) -> None:
    has_a_command(told, 'echo "$@" >asked')
    told.order("drained", node=2, server="n2:5672", listener="default")
    told.process.kill()
    wait_until((told.directory / "asked").exists, "the node to be let lead")


def test_who_cannot_be_told_to_lead_again_is_started_anew(told: Told) -> None:
    """Nobody on its host may log in; what is drained a node knows by itself, and forgets with its process."""
    has_a_command(told, "echo who are you; exit 1")
    told.order("drained", node=2, server="n2:5672", listener="default")
    assert told.leave() == 0
    first, second = told.started
    assert (born(first), born(second) is not None) == (None, True)


def test_an_answer_that_nobody_takes_is_an_end(make: Callable[..., Told]) -> None:
    """A network that is dead takes some bytes, and no more."""
    told = make(silent_s=1.0)
    log = told.directory / "node.log"
    log.write_bytes(bytes(1 << 20))
    told.order("kill")
    assert told.process.stdin is not None
    told.process.stdin.write(json.dumps({"order": "log", "path": str(log), "position": 0}).encode() + b"\n")
    told.process.stdin.flush()
    wait_until(lambda: len(told.started) == 2, "the node to be started")
    assert told.process.wait(60) == 0


def test_why_a_node_is_not_ready_is_told_in_its_words(told: Told) -> None:
    [port] = free_ports(1)
    answer = told.order("status", health=f"127.0.0.1:{port}")["ok"]
    assert not answer["ready"]
    assert f"http://127.0.0.1:{port}/health/ready: " in answer["why"]


async def test_a_node_that_starts_says_what_it_waits_for(told: Told) -> None:
    server = MonitoringServer(StartupState(lambda: "node 2"))
    await server.start(HostAndPort("127.0.0.1", 0))
    try:
        [(host, port)] = server.addresses
        answer = await asyncio.to_thread(told.order, "status", health=f"{host}:{port}")
    finally:
        await server.stop()
    assert answer["ok"] == {"pid": told.started[0], "ready": False, "why": "discovery: waits for node 2"}


def test_what_cannot_be_done_is_told_and_is_no_end(told: Told) -> None:
    assert told.order("log", path="/proc", position=0)["trouble"] == "failed"
    assert told.order("pid")["ok"] == told.started[0]


def test_a_log_is_given_in_pieces_and_from_its_begin_when_it_was_cut_off(told: Told) -> None:
    log = told.directory / "node.log"
    log.write_text("one\ntwo\n")
    assert told.order("log", path=str(log), position=4)["ok"] == {"text": "two\n", "position": 8}
    assert told.order("log", path=str(log), position=8)["ok"] == {"text": "", "position": 8}
    log.write_text("new\n")
    assert told.order("log", path=str(log), position=8)["ok"] == {"text": "new\n", "position": 4}


def test_there_is_one_agent_at_a_time_and_who_comes_second_is_told_of_the_first() -> None:
    name = f"of-a-test-{os.getpid()}"
    held = Lock("ops@laptop, process 17", name)
    with pytest.raises(Trouble, match=r"another run is at work here.*: ops@laptop, process 17$"):
        Lock("dev@desk, process 18", name)
    held.close()
    assert holder(name) == "it does not say whose"
    Lock("dev@desk, process 18", name).close()


def test_whoever_has_a_long_name_or_none_of_ours_has_the_lock() -> None:
    name = f"of-a-test-{os.getpid()}"
    held = Lock("Jürgen\n" + 200 * "x", name)
    assert holder(name).startswith("J?rgen?xxx")
    held.close()


KILLED = """
import os, sys
from chaos.cluster.provisioned.on_host.keeper import UndoKeeper
from chaos.cluster.provisioned.on_host.lock import Lock

def undo(done):
    while os.path.exists(sys.argv[2]):  # it takes until somebody lets it end
        pass

lock = Lock("a killed run", sys.argv[1])
UndoKeeper(undo, ()).note({"is_down": True})
os.kill(os.getpid(), 9)
"""


def test_the_lock_is_held_until_what_a_killed_agent_did_is_undone(tmp_path: Path) -> None:
    name, busy = f"of-a-test-{os.getpid()}", tmp_path / "busy"
    busy.touch()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", KILLED, name, str(busy)], check=False, env=environment)
    try:
        with pytest.raises(Trouble, match="a killed run"):
            Lock("the next one", name)
    finally:
        busy.unlink()
    wait_until(lambda: holder(name) == "it does not say whose", "the end of the keeper")
    Lock("the next one", name).close()


def test_its_text_needs_nothing_of_ours() -> None:
    """A host has a Python, and no more."""
    text = program(then="print(module.SILENT_S, [one for one in sys.modules.values() if 'site-packages' in repr(one)])")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-"], input=text, capture_output=True, text=True, check=False, cwd="/"
    )  # fmt: skip
    assert done.stdout == f"{agent.SILENT_S} []\n", done.stderr
