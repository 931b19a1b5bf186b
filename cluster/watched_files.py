"""Watch on files that may change: certificates are renewed while a process runs.

The rule: a look costs one `stat` for each file, so that each connection can afford it; a file that is not there is
a state like others, since a renewal may pass through it. Content is never compared, since keys should not stay in
memory for that.
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
        """True if a file has changed since the last call, or since the beginning."""
        before, self._seen = self._seen, [_seen(path) for path in self._paths]
        return self._seen != before


def _seen(path: Path) -> Seen:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
