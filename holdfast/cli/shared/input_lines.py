"""Lines of a file or of standard input, as they come, without holding up the event loop.

Rule never broken: a line that is there is handed on, although more may come later (so that `tail -f | holdfast
produce` works); memory is bounded by the longest line.
"""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import IO, cast

from holdfast.cli.shared.errors import EXIT_USAGE, CliError

READ_BYTES = 256 * 1024
READ_AHEAD_CHUNKS = 4  # read and not yet asked for
MAX_LINE_BYTES = 16 * 1024 * 1024  # the largest message that a node can be configured to take


def open_input(path: str) -> IO[bytes]:
    """A file by name (`-`: standard input), decompressed when its name ends in .gz."""
    if path == "-":
        return cast("IO[bytes]", io.FileIO(sys.stdin.fileno(), closefd=False))
    try:
        if path.endswith(".gz"):
            return cast("IO[bytes]", gzip.open(path, "rb"))
        return Path(path).open("rb")
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror or error}", exit_code=EXIT_USAGE) from error


async def lines(stream: IO[bytes], name: str) -> AsyncIterator[list[bytes]]:
    """Lists of lines without their ends; the last line need not be terminated."""
    rest = b""
    async for chunk in _chunks(stream, name):
        *complete, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise CliError(f"{name} has a line of more than {MAX_LINE_BYTES} bytes", advice="is it a text file?")
        if complete:
            yield [line.removesuffix(b"\r") for line in complete]
    if rest:
        yield [rest.removesuffix(b"\r")]


async def _chunks(stream: IO[bytes], name: str) -> AsyncIterator[bytes]:
    """Yield what `stream` gives, as soon as it does. A daemon thread reads, since a terminal cannot be told to answer:
    a pool's thread that waits for it would hold up the end of the program after Ctrl-C."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[bytes | Exception] = asyncio.Queue()
    room = threading.Semaphore(READ_AHEAD_CHUNKS)
    # read1 (files) and an unbuffered read (standard input) return what is there instead of waiting for more.
    read: Callable[[int], bytes] = getattr(stream, "read1", None) or stream.read

    def work() -> None:
        chunk: bytes | Exception = b"-"
        while chunk and not isinstance(chunk, Exception):
            room.acquire()
            try:
                chunk = read(READ_BYTES)
            except (OSError, EOFError, ValueError) as error:  # ValueError: closed under us
                chunk = error
            try:
                loop.call_soon_threadsafe(arrived.put_nowait, chunk)
            except RuntimeError:
                return  # the loop is over: nobody wants it any more

    threading.Thread(target=work, name=f"reads {name}", daemon=True).start()
    while chunk := await arrived.get():
        if isinstance(chunk, Exception):
            raise CliError(f"{name} cannot be read: {chunk}") from chunk
        room.release()
        yield chunk


class KeyColumn:
    """The column of a delimited line that holds the key: by number (from 1), or by its name in the first line."""

    def __init__(self, column: str, delimiter: str) -> None:
        if len(delimiter.encode()) != 1:
            raise CliError(f"a delimiter is one character, not {delimiter!r}", exit_code=EXIT_USAGE)
        self._delimiter = delimiter
        self.name = "" if column.isdigit() else column
        self._index = int(column) - 1 if column.isdigit() else -1
        if self._index < 0 and not self.name:
            raise CliError("columns are numbered from 1", exit_code=EXIT_USAGE)

    @property
    def needs_header(self) -> bool:
        return self._index < 0

    def read_header(self, line: bytes) -> None:
        names = self._fields(line)
        if self.name not in names:
            raise CliError(
                f"the first line has no column {self.name!r} (it has {', '.join(names)})", exit_code=EXIT_USAGE
            )
        self._index = names.index(self.name)

    def key_of(self, line: bytes) -> str:
        fields = self._fields(line)
        if self._index >= len(fields):
            raise CliError(f"a line has no column {self._index + 1}: {line[:80]!r}")
        return fields[self._index]

    def _fields(self, line: bytes) -> list[str]:
        text = line.decode("utf-8", "replace")
        if '"' not in text:
            return text.split(self._delimiter)
        try:
            return next(csv.reader(io.StringIO(text), delimiter=self._delimiter), [])
        except csv.Error as error:
            raise CliError(f"a line cannot be divided into columns ({error}): {line[:80]!r}") from error
