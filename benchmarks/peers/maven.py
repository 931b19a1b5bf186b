"""Brokers that come as jars from Maven: where they are, in which version, and what they need to run."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1]


@dataclass(frozen=True)
class MavenBrokers:
    """What scripts/<name>.sh fetches, as benchmarks/<name>/pom.xml pins it."""

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
        """The directory that the script puts them in."""
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return caches / "holdfast" / f"{self.name}-{self.version}"

    @property
    def class_path(self) -> str:
        return f"{self.jars}/*"

    def lacking(self) -> list[str]:
        """What they cannot run without and is not here, each with how to get it."""
        found = []
        if not self.jars.is_dir():
            found.append(f"its brokers (scripts/{self.name}.sh fetches them; it needs Maven)")
        if shutil.which("java") is None:
            found.append("a Java of 17 or newer (apt-get install default-jre-headless)")
        return found
