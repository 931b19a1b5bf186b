"""Receiving end: grants credit, accepts and counts everything, checks order and completeness."""

from __future__ import annotations

from array import array
from time import perf_counter_ns
from typing import Any

import cproton
from cproton import ffi, lib

from benchmarks.driver.filters import FILTERS
from benchmarks.driver.link import DrivenLink, LinkOptions
from benchmarks.driver.measure import Tally, Window
from benchmarks.driver.stamp import read_stamp
from benchmarks.driver.wire import Url

FIRST_BUFFER_BYTES = 1 << 16  # grows when an event is larger


class DrivenReceiver(DrivenLink):
    """A receiver that counts gaps and repeats: each sender's events must come in order, each once."""

    def __init__(
        self, url: Url, name: str, options: LinkOptions, *,
        credit: int, count: int | None, tally: Tally, latency: bool,
    ) -> None:  # fmt: skip
        self._credit = credit
        self._refill_below = credit // 2
        self._left = count if count is not None else 1 << 62
        self._tally = tally
        self._latencies: array[int] | None = tally.latencies_ns if latency else None
        self._buffer = bytearray(FIRST_BUFFER_BYTES)
        self._buffer_c = ffi.from_buffer(self._buffer)
        self._next: dict[int, int] = {}
        self._got = 0
        self.foreign = 0
        self.gaps = 0
        self.repeats = 0
        super().__init__(url, name, options)

    def _make_link(self, url: Url) -> Any:
        link = cproton.pn_receiver(self.wire.session, self.name)
        source = lib.pn_link_source(link)
        cproton.pn_terminus_set_address(source, url.address)
        cproton.pn_terminus_set_address(lib.pn_link_target(link), self.name)
        FILTERS[self.options.filter_kind](lib.pn_terminus_filter(source), self.options.start)
        mode = cproton.PN_SND_SETTLED if self.options.settled else cproton.PN_SND_UNSETTLED
        lib.pn_link_set_snd_settle_mode(link, mode)
        return link

    def _remote_terminus(self) -> Any:
        return lib.pn_link_remote_source(self.link)

    def _on_opened(self) -> None:
        lib.pn_link_flow(self.link, self._credit)

    def stop(self) -> None:
        self._left = 0

    @property
    def done(self) -> bool:
        return self._left <= 0

    def work(self) -> None:
        if self.opened:
            missing = self._credit - lib.pn_link_credit(self.link)
            if missing > self._refill_below:
                lib.pn_link_flow(self.link, missing)
        self.wire.flush()

    def _on_delivery(self, delivery: Any) -> None:
        if not lib.pn_delivery_readable(delivery) or lib.pn_delivery_partial(delivery):
            return
        size = lib.pn_delivery_pending(delivery)
        if size > len(self._buffer):
            self._buffer = bytearray(size)
            self._buffer_c = ffi.from_buffer(self._buffer)
        lib.pn_link_recv(self.link, self._buffer_c, size)
        lib.pn_link_advance(self.link)
        if not lib.pn_delivery_settled(delivery):
            lib.pn_delivery_update(delivery, cproton.PN_ACCEPTED)
        lib.pn_delivery_settle(delivery)
        self._got += 1
        stamp = read_stamp(self._buffer, size)
        if stamp is None:
            self.foreign += 1
            return
        sender_id, sequence, sent_ns = stamp
        expected = self._next.get(sender_id, sequence)
        if sequence > expected:
            self.gaps += sequence - expected
        elif sequence < expected:
            self.repeats += 1
        self._next[sender_id] = max(sequence + 1, expected)
        if self._latencies is not None:
            self._latencies.append(perf_counter_ns() - sent_ns)

    def counted(self, now_ns: int, window: Window) -> None:
        if self._got:
            self._tally.count(self._got, now_ns, window)
            self._left -= self._got
            self._got = 0
