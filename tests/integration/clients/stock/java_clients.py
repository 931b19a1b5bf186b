"""Programs on Java's stock clients (Qpid JMS, protonj2): built once by Maven, outside the work tree, and told step by
step what to do (`java/src/main/java/holdfast/clients/Steps.java`)."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import select
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from holdfast.cli.local_cluster import child_processes

HERE = Path(__file__).parent / "java"
PROGRAMS = {"jms": "holdfast.clients.Jms", "protonj2": "holdfast.clients.Protonj2"}

BUILD_WITHIN_S = 420
ANSWER_WITHIN_S = 240
"""For what must happen at all; the programs themselves give up after two minutes and say so."""

MISSING = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]


def build(source: Path = HERE) -> str:
    """The class path of a folder with a pom.xml, after what is in the work tree and no other."""
    files = sorted(path for path in source.rglob("*") if path.suffix in (".java", ".xml"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast-tests"
    home = caches / f"java-{digest}"
    caches.mkdir(parents=True, exist_ok=True)
    with (caches / "java-lock").open("w") as guard:  # several test processes share it
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not home.exists():
            with tempfile.TemporaryDirectory(dir=caches) as scratch:
                shutil.copytree(source, scratch, dirs_exist_ok=True, ignore=shutil.ignore_patterns("target"))
                goals = ["compile", "dependency:copy-dependencies", "-DoutputDirectory=target/lib"]
                done = subprocess.run(
                    ["mvn", "-B", "-q", *goals],
                    cwd=scratch,
                    capture_output=True,
                    text=True,
                    timeout=BUILD_WITHIN_S,
                    check=False,
                )
                assert done.returncode == 0, f"mvn failed:\n{done.stdout}\n{done.stderr}"
                (Path(scratch) / "target").rename(home)
    return f"{home / 'classes'}:{home / 'lib'}/*"


class JavaClient:
    """A program that runs. `take` raises nothing for what the client reports: that is what tests look at."""

    def __init__(self, program: str, address: str, name: str, *, transacted: bool) -> None:
        host, _, port = address.rpartition(":")
        mode = "transacted" if transacted else "plain"
        words = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-cp", build(), PROGRAMS[program], host, port, name, mode]
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = child_processes.spawn(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints
        )
        assert self._answer() == {"ready": True}

    def __enter__(self) -> JavaClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None and self._process.poll() is None:
            self.end()
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._complaints):
            assert pipe is not None
            pipe.close()

    def take(self, *words: object) -> dict[str, Any]:
        """One step, and what the client says of it."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def do(self, *words: object) -> Any:
        """A step that must go well; what was received, if it was that."""
        answer = self.take(*words)
        assert "error" not in answer, f"{words}: {answer['error']}\n{self._tail()}"
        return answer.get("bodies")

    def end(self) -> None:
        """The client closes its connection, as its users do."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"end\n")
        self._process.stdin.flush()
        assert self._process.wait(ANSWER_WITHIN_S) == 0, self._tail()

    def kill(self) -> None:
        """The client is gone, without a word."""
        self._process.kill()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], ANSWER_WITHIN_S)[0]:
            raise AssertionError(f"no answer within {ANSWER_WITHIN_S} s\n{self._tail()}")
        line = self._process.stdout.readline()
        assert line, f"the client ended with status {self._process.wait(ANSWER_WITHIN_S)}\n{self._tail()}"
        return dict(json.loads(line))

    def _tail(self) -> str:
        self._complaints.seek(0)
        return self._complaints.read().decode(errors="replace")[-4000:]
