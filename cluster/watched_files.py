"""Whether files are still those that were seen: certificates are renewed while a process runs.

The rule: what a look costs is a `stat` for each, so that it may be had for each connection; a file that is not there is
a state like others, since a renewal may pass through it. Content is never compared, as the keys among it are not to lie
in memory for that.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

Seen = tuple[int, int, int] | None


class WatchedFiles:
    def __init__(self, paths: Iterable[str | Path]) -> None:
        self._paths = [Path(path) for path in paths]
        self._seen = [_seen(path) for path in self._paths]

    def have_changed(self) -> bool:
        """Since they were asked for last, or since the beginning."""
        before, self._seen = self._seen, [_seen(path) for path in self._paths]
        return self._seen != before


def _seen(path: Path) -> Seen:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
