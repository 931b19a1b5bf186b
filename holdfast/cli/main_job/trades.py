"""The main job's data, and the proof that all of it came back.

The file: a day of trades of a few stocks, a header and one line per trade, in time order. An event of the job is
`run,number,<line>`: the run tells this job's events from others, the running number tells a copy from the original.

What is proven, per symbol: as many events as the file has lines, in the order of the file, with the same bytes (a
running checksum over them all). A copy is an event whose number has been seen; it is dropped and counted. An event
whose number is lower than one seen before, and was not seen itself, breaks the order and fails the run.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.cli.shared.errors import CliError
from holdfast.client.events import ReceivedEvent

HEADER = b"ms_of_day,symbol,price,size,exchange,conditions,suspicious"
SYMBOL_COLUMN = 1
CHECKSUM_BYTES = 6  # chance, not malice: one in 2**48; and it fits a table


@dataclass(frozen=True)
class Trade:
    """One line of the file."""

    number: int
    symbol: str
    line: bytes


def read_trades(path: Path) -> Iterator[Trade]:
    """The trades of a .csv.gz file, numbered from 0."""
    try:
        with gzip.open(path, "rb") as stream:
            header = stream.readline().strip()
            if header != HEADER:
                raise CliError(f"{path} does not begin with the expected header but with {header[:80]!r}")
            symbols: dict[bytes, str] = {}
            for number, line in enumerate(stream):
                line = line.rstrip(b"\r\n")
                raw = line.split(b",", 2)[SYMBOL_COLUMN]
                symbol = symbols.get(raw) or symbols.setdefault(raw, raw.decode("ascii"))
                yield Trade(number, symbol, line)
    except (OSError, EOFError, IndexError, UnicodeDecodeError) as error:
        raise CliError(f"{path} cannot be read: {error}") from error


@dataclass
class SymbolTally:
    """Number of a symbol's lines that went by, and their checksum in that order."""

    count: int = 0
    last_number: int = -1
    digest: hashlib.blake2b = field(default_factory=lambda: hashlib.blake2b(digest_size=CHECKSUM_BYTES))

    def add(self, number: int, line: bytes) -> None:
        self.count += 1
        self.last_number = number
        self.digest.update(line)

    @property
    def checksum(self) -> str:
        return self.digest.hexdigest()


@dataclass
class Published:
    """Trades that were given to the producer, by symbol."""

    symbols: dict[str, SymbolTally] = field(default_factory=dict)
    count: int = 0

    def add(self, trade: Trade) -> None:
        self.symbols.setdefault(trade.symbol, SymbolTally()).add(trade.number, trade.line)
        self.count += 1


class ReadBack:
    """Events that came out of the log, with copies dropped."""

    def __init__(self, run: str) -> None:
        self._run = run.encode("ascii")
        self._seen = bytearray()
        self.symbols: dict[str, SymbolTally] = {}
        self.events = 0  # everything of this run, copies included
        self.distinct = 0
        self.copies = 0
        self.strangers = 0  # events of somebody else
        self.disorder: list[str] = []

    def add(self, event: ReceivedEvent) -> None:
        fields = event.body.split(b",", 4)
        if len(fields) < 5 or fields[0] != self._run:
            self.strangers += 1
            return
        number, symbol = int(fields[1]), fields[3].decode("ascii")
        self.events += 1
        tally = self.symbols.setdefault(symbol, SymbolTally())
        if number >= len(self._seen):
            self._seen.extend(bytes(number + 1 - len(self._seen) + 4096))
        if self._seen[number]:
            self.copies += 1
            return
        if number < tally.last_number:
            self.disorder.append(f"{symbol}: number {number} came after {tally.last_number}")
        self._seen[number] = 1
        self.distinct += 1
        tally.add(number, b",".join(fields[2:]))

    def differences(self, published: Published) -> list[str]:
        """Say what is wrong; nothing when every event came back, in order per symbol."""
        found = [f"out of order: {text}" for text in self.disorder[:5]]
        if len(self.disorder) > 5:
            found.append(f"out of order: {len(self.disorder) - 5} more")
        for symbol, sent in published.symbols.items():
            back = self.symbols.get(symbol, SymbolTally())
            if back.count != sent.count:
                found.append(f"{symbol}: {sent.count} events published, {back.count} read back")
            elif back.checksum != sent.checksum:
                found.append(f"{symbol}: the checksums differ: {sent.checksum} published, {back.checksum} read back")
        found += [f"{symbol}: read back but never published" for symbol in set(self.symbols) - set(published.symbols)]
        return found
