"""Programs on the SDKs of Event Hubs: a producer and a processor of each, which tell what they learn as lines of JSON.

A program runs in a process of its own and goes on until its standard input ends. Where the tools of a language are
missing, its tests are skipped and say so.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.local_cluster import child_processes
from tests.integration.clients.event_hubs import rust_programs
from tests.integration.clients.event_hubs.hub_cluster import HubCluster
from tests.integration.clients.npm import installed
from tests.integration.clients.stock.java_clients import MISSING, build
from tests.integration.clusters.cluster import wait_until

HERE = Path(__file__).parent
WITHIN_S = 300
"""For what must happen at all."""


@dataclass(frozen=True)
class Launch:
    """How to start a program; the words that the program takes follow."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


class SdkProgram:
    """One that runs until `finish`; `said` is what it wrote so far."""

    def __init__(self, launch: Launch, *words: str) -> None:
        self.said: list[dict[str, Any]] = []
        self.acknowledged: dict[str, float] = {}
        """Bodies of events, and the times at which this process heard that they are stored."""
        self.seen: dict[str, float] = {}
        """Bodies of events, and the times at which they were first received."""
        self._process = child_processes.spawn(
            [*launch.command, *words],
            env={**os.environ, **launch.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said, now = json.loads(line), time.monotonic()
            self.acknowledged.update(dict.fromkeys(map(str, said.get("acknowledged", ())), now))
            if "event" in said:
                self.seen.setdefault(str(said["event"]), now)
            self.said.append(said)

    def all(self, kind: str) -> list[Any]:
        return [one[kind] for one in list(self.said) if kind in one]

    def until(self, reached: Callable[[], object], what: str) -> None:
        """Wait. A failure that the program tells of, and its end, are not waited out."""
        wait_until(lambda: reached() or self.all("failed") or self._process.poll() is not None, what, WITHIN_S)
        assert (failed := self.all("failed"), self._process.poll()) == ([], None), f"{what}: {failed}"

    def finish(self) -> None:
        """Let it end by itself, without a failure."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(WITHIN_S)
        finally:
            self.kill()
        assert (status, failed := self.all("failed")) == (0, []), f"{status}: {failed}"

    def kill(self) -> None:
        """kill -9: it is gone, without a word. Nothing happens to one that has ended."""
        self._process.kill()
        self._process.wait(WITHIN_S)
        self._thread.join(WITHIN_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def _python() -> Launch:
    return Launch([sys.executable, str(HERE / "python" / "processor.py")])


def _javascript() -> Launch:
    home = installed(HERE / "javascript")
    return Launch(["node", str(HERE / "javascript" / "processor.js")], {"SDK_HOME": str(home)})


def _go() -> Launch:
    return Launch([str(go_program("processor"))])


def _java() -> Launch:
    path = build(HERE / "java")
    return Launch(["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", path, "holdfast.clients.Processor"])


def _rust() -> Launch:
    return Launch([str(rust_programs.program("store"))])


def go_program(package: str) -> Path:
    """A program of the Go module beside this file, built once from what is in the work tree."""
    files = sorted(path for path in (HERE / "go").rglob("*") if path.suffix in (".go", ".mod", ".sum"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast-tests" / f"go-{digest}"
    program = home / package
    if not program.exists():
        home.mkdir(parents=True, exist_ok=True)
        built = home / f"{package}-{os.getpid()}"  # several test processes may build it; each puts the same in place
        done = subprocess.run(
            ["go", "build", "-o", str(built), f"./{package}"],
            cwd=HERE / "go",
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        built.rename(program)
    return program


@dataclass(frozen=True)
class Sdk:
    """An SDK: how its producer and its processor start, and what they need."""

    name: str
    launch: Callable[[], Launch]
    missing: str
    process: str = "process"

    def producer(self, stored: HubCluster, hub: str, address: str, before: Sequence[str] = ()) -> SdkProgram:
        """Start a producer for all partitions of a hub. `before`: the beginning of its command."""
        launch = self.launch()
        launch = replace(launch, command=[*before, *launch.command])
        return SdkProgram(launch, "send", stored.text(hub=hub, address=address))

    def processor(self, stored: HubCluster, hub: str, group: str, *, address: str = "", store: str = "") -> SdkProgram:
        """Start a processor."""
        address = address or stored.cluster.address(1)
        if self.name == "rust":
            container = f"http://{store or stored.doors[0]}/checkpoints"  # nothing is signed, so no account
            return SdkProgram(self.launch(), hub, f"amqp://{address}", container, group)
        text = stored.text(hub=hub, address=address)
        return SdkProgram(self.launch(), self.process, text, stored.store_text(store), group)


def _absent(*tools: str) -> str:
    return ", ".join(tool for tool in tools if shutil.which(tool) is None)


_python_missing = "" if importlib.util.find_spec("azure") else "the SDK azure-eventhub"

SDKS = {
    sdk.name: sdk
    for sdk in (
        Sdk("python", _python, _python_missing),
        Sdk("python-sync", _python, _python_missing, "process-sync"),
        Sdk("javascript", _javascript, _absent("node", "npm")),
        Sdk("go", _go, _absent("go")),
        Sdk("java", _java, ", ".join(MISSING)),
        Sdk("rust", _rust, rust_programs.missing()),
    )
}


def each_sdk(*left_out: str) -> pytest.MarkDecorator:
    """Parametrize a test by `sdk`, over all but those left out."""
    found = [
        pytest.param(sdk, id=name, marks=pytest.mark.skipif(bool(sdk.missing), reason=f"not installed: {sdk.missing}"))
        for name, sdk in SDKS.items()
        if name not in left_out
    ]
    return pytest.mark.parametrize("sdk", found)
