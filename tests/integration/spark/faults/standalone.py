"""A cluster of Spark's own: a master, two workers of one core each, and what they start. On loopback, for one test."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from holdfast.cli.local_cluster import child_processes
from tests.integration.clusters.cluster import wait_until
from tests.integration.spark.session import QUICK_START, environment
from tests.ports import free_ports

MAIN = "org.apache.spark.deploy"
WORKERS = 2


class Standalone:
    def __init__(self, master: str, environment: dict[str, str], workers: list[subprocess.Popen[bytes]]) -> None:
        self.master, self.environment, self._workers = master, environment, workers

    def worker_of(self, pid: int) -> int:
        """Which of the workers has started the process, or what has started it."""
        above = {process.pid for process in psutil.Process(pid).parents()}
        return next(number for number, worker in enumerate(self._workers) if worker.pid in above)

    @contextmanager
    def paused(self, number: int) -> Iterator[None]:
        """SIGSTOP for the worker and all that it has started, for the duration of the block."""
        worker = psutil.Process(self._workers[number].pid)
        stopped = [worker, *worker.children(recursive=True)]
        for process in stopped:
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in stopped:
                if process.is_running():
                    process.send_signal(signal.SIGCONT)


@contextmanager
def standalone(directory: Path, *, patience_s: int = 60) -> Iterator[Standalone]:
    """`patience_s`: of the master, with a worker that says nothing."""
    import pyspark

    home = Path(pyspark.__file__).parent
    more = environment(directory) | {
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_START} -Dspark.worker.timeout={patience_s}",
    }
    start = [str(home / "bin" / "spark-class")]
    port, *ports = free_ports(2 + WORKERS)
    master, log = f"spark://127.0.0.1:{port}", directory / "spark.log"

    def said(text: str, times: int) -> bool:
        return log.read_text(errors="replace").count(text) >= times

    with ExitStack() as stack:
        where = ["--host", "127.0.0.1", "--webui-port", str(ports[0])]
        stack.enter_context(_running([*start, f"{MAIN}.master.Master", *where, "--port", str(port)], log, more))
        wait_until(lambda: said("New state: ALIVE", 1), "the master")
        workers = []
        for number in range(WORKERS):
            where = ["--host", "127.0.0.1", "--webui-port", str(ports[1 + number])]
            size = ["--work-dir", str(directory / f"w{number}"), "--cores", "1", "--memory", "700m"]
            command = [*start, f"{MAIN}.worker.Worker", *where, *size, master]
            workers.append(stack.enter_context(_running(command, log, more)))
        wait_until(lambda: said("Registering worker", WORKERS), "two workers")
        yield Standalone(master, more, workers)


@contextmanager
def _running(arguments: list[str], log: Path, more: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as output:
        process = child_processes.spawn(
            arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **more}
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)
