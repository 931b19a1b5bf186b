"""Brokers that come as jars from Maven: their place, their version, and their requirements."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1]


@dataclass(frozen=True)
class MavenBrokers:
    """Brokers that scripts/<name>.sh fetches, as benchmarks/<name>/pom.xml pins them."""

    name: str

    @property
    def pom(self) -> Path:
        return BENCHMARKS / self.name / "pom.xml"

    @property
    def version(self) -> str:
        found = re.search(rf"<{self.name}\.version>(.+?)</{self.name}\.version>", self.pom.read_text(encoding="utf-8"))
        assert found is not None, f"{self.pom} names no version"
        return found[1]

    @property
    def jars(self) -> Path:
        """Directory into which the script puts the jars."""
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return caches / "holdfast" / f"{self.name}-{self.version}"

    @property
    def class_path(self) -> str:
        return f"{self.jars}/*"

    def lacking(self) -> list[str]:
        """List missing requirements, each with how to get it."""
        found = []
        if not self.jars.is_dir():
            found.append(f"its brokers (scripts/{self.name}.sh fetches them; it needs Maven)")
        if shutil.which("java") is None:
            found.append("a Java of 17 or newer (apt-get install default-jre-headless)")
        return found
