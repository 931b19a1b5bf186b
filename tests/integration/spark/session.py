"""One Spark for a test process: started by the first test that needs it, and ended by its process id with the last."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
HEAP = "512m"
END_WITHIN_S = 60.0

QUICK_START = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Queries of tests are over before the better compiler would pay; Spark's own classes need no verification."""

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Rows of tests are too few for Java that would be compiled for each query. What runs is Spark's own either way."""

SETTINGS = {
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": HEAP,
    **INTERPRETED,
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.pollingDelay": "100ms",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.use.daemon": "true",
    "spark.task.maxFailures": "1",
}


def why_not() -> str | None:
    """The reason to skip tests that need Spark; None if there is one."""
    lacking = [name for name in ("pyspark", "pyarrow", "pandas") if find_spec(name) is None]
    if lacking:
        return f"there is no {', '.join(lacking)} here: `make test` installs it"
    if shutil.which("java") is None:
        return "there is no Java here, which Spark runs on"
    return None


def environment(directory: Path) -> dict[str, str]:
    """Of Spark and all that it starts: this Python, this checkout, loopback, and files in a directory of the test's."""
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_START,
        "SPARK_LOCAL_DIRS": str(directory / "local"),
    }


class RunningSpark:
    def __init__(self, directory: Path) -> None:
        from pyspark.sql import SparkSession

        before = dict(os.environ)
        os.environ.update(environment(directory))
        try:
            self.session: Any = self._start(SparkSession.builder, directory)
        finally:  # other tests of this process start programs of their own
            os.environ.clear()
            os.environ.update(before)
        self.session.sparkContext.setLogLevel("ERROR")
        gateway = self.session.sparkContext._gateway
        self._gateway, self._java = gateway, gateway.proc

    @staticmethod
    def _start(builder: Any, directory: Path) -> Any:
        builder = builder.master("local[2]").appName("tests")
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        return builder.config("spark.sql.warehouse.dir", str(directory / "warehouse")).getOrCreate()

    def close(self) -> None:
        """The Java process ends when its input does; with it its Python workers."""
        self.session.stop()
        self._gateway.shutdown()
        self._java.stdin.close()
        try:
            self._java.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._java.kill()
            self._java.wait()
            raise
