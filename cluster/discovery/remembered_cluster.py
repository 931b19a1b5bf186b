"""Memory of the cluster that a node joined, beside its data.

The problem: ZooKeeper's data may be lost or another ensemble be named by mistake, and a node that then joined "a
cluster of that name" could vote among other voters than it voted with before. The rule: the first cluster that a data
directory joins is the only one; where ZooKeeper knows nothing any more it is told again from memory. `token` tells this
data directory from every other: only the process that holds its lock uses it, so a registration that bears it is our
own, from before a crash.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.discovery.api import DiscoveryError

FILE = "discovery.json"
LOCK = "discovery.lock"
FORMAT = 1


class InUse(DiscoveryError):
    """Another process has this data directory."""


class RememberedCluster:
    """Memory of one data directory. No other process opens it until `close`."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise InUse(f"{directory} is in use by another process: stop that one first") from error
        try:
            self._content = self._read()
        except DiscoveryError:
            os.close(self._lock)
            raise

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            content = {"format": FORMAT, "token": secrets.token_hex(16), "cluster": None}
            self._write(content)
        except (OSError, ValueError) as error:
            raise DiscoveryError(f"{self._path} cannot be read ({error}): restore it from a backup") from error
        if content.get("format") != FORMAT:
            raise DiscoveryError(f"{self._path} has a format that this version does not know: use the newer version")
        return dict(content)

    @property
    def token(self) -> str:
        return str(self._content["token"])

    @property
    def cluster(self) -> dict[str, Any] | None:
        """{"id": str, "voters": {"1": address}} as joined first."""
        found: dict[str, Any] | None = self._content["cluster"]
        return found

    def remember(self, cluster_id: str, voters: Mapping[int, str]) -> None:
        cluster = {"id": cluster_id, "voters": {str(node): address for node, address in sorted(voters.items())}}
        if cluster != self.cluster:
            self._write({**self._content, "cluster": cluster})

    def close(self) -> None:
        """Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _write(self, content: dict[str, Any]) -> None:
        fresh = self._path.with_name(FILE + ".new")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        self._content = content
