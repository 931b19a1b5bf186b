"""Sending end: keeps a window of unsettled events full until it is told to stop.

The hot loops make about ten calls into proton per event; everything else is outside of them.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

import cproton
from cproton import ffi, lib

from benchmarks.driver.link import DrivenLink, LinkOptions, Redirected
from benchmarks.driver.measure import Outcomes, Tally, Window
from benchmarks.driver.stamp import Template
from benchmarks.driver.wire import Url, describe

# Most bytes that wait inside proton: enough to fill a socket, little compared with a window of large events.
OUTPUT_LIMIT_BYTES = 4 * 1024 * 1024
TAG_BYTES = 4
OUTCOME_NAMES = {
    cproton.PN_REJECTED: "rejected",
    cproton.PN_RELEASED: "released",
    cproton.PN_MODIFIED: "modified",
}


class DrivenSender(DrivenLink):
    """A sender that keeps up to `window` events unsettled until it is told to stop."""

    def __init__(
        self, url: Url, name: str, options: LinkOptions, *,
        sender_id: int, body_bytes: int, window: int, count: int | None, tally: Tally, outcomes: Outcomes,
    ) -> None:  # fmt: skip
        self._template = Template(body_bytes, sender_id, durable=options.durable)
        self._body_c = ffi.from_buffer(self._template.buffer)
        # A tag is reused only after its delivery was settled, so as many tags as the window suffice.
        self._tag_bytes = ffi.new("char[]", b"".join(i.to_bytes(TAG_BYTES, "big") for i in range(window)))
        self._tags = [
            ffi.new("pn_delivery_tag_t *", (TAG_BYTES, self._tag_bytes + i * TAG_BYTES))[0] for i in range(window)
        ]
        self._pending: dict[Any, tuple[Any, int]] = {}
        self._count = count
        self._left = 0  # nothing is sent before begin(): all links of a run start together
        self._tally = tally
        self._outcomes = outcomes
        self._acked = 0
        self.sent = 0
        self.lost = 0  # events in flight when a redirect ended the connection: outcome unknown
        super().__init__(url, name, options)

    def _make_link(self, url: Url) -> Any:
        link = cproton.pn_sender(self.wire.session, self.name)
        cproton.pn_terminus_set_address(lib.pn_link_target(link), url.address)
        cproton.pn_terminus_set_address(lib.pn_link_source(link), self.name)
        lib.pn_link_set_snd_settle_mode(link, cproton.PN_SND_UNSETTLED)
        return link

    def _remote_terminus(self) -> Any:
        return lib.pn_link_remote_target(self.link)

    def follow(self, redirect: Redirected) -> None:
        self.lost += len(self._pending)
        self._tags.extend(tag for tag, _ in self._pending.values())
        self._pending.clear()
        self.opened = False
        super().follow(redirect)

    def resume(self, url: Url) -> None:
        """Connect to `url` after the end of a connection, and send the events in flight again."""
        in_flight = len(self._pending)
        self._left += in_flight
        self.sent -= in_flight
        self.lost -= in_flight  # `follow` counts them as lost
        self.hops = 0
        self.follow(Redirected(url))

    def begin(self) -> None:
        self._left = self._count if self._count is not None else 1 << 62
        self.work()

    def stop(self) -> None:
        """Send no new events; events in flight are still awaited."""
        self._left = 0

    @property
    def done(self) -> bool:
        return self._left <= 0 and not self._pending

    @property
    def unsettled(self) -> int:
        return len(self._pending)

    def work(self) -> None:
        """Send what window, credit and proton's buffer allow, then write. Called after every read."""
        while self._send_some():
            self.wire.flush()
            if self.wire.wants_write:
                return
        self.wire.flush()

    def _send_some(self) -> bool:
        room = (OUTPUT_LIMIT_BYTES - lib.pn_session_outgoing_bytes(self.wire.session)) // self._template.size
        number = min(len(self._tags), self._left, max(room, 0), lib.pn_link_credit(self.link))
        if not self.opened or number <= 0:
            return False
        new_delivery, send, advance = lib.pn_delivery, lib.pn_link_send, lib.pn_link_advance
        link, pending, stamp, take_tag = self.link, self._pending, self._template.stamp, self._tags.pop
        body, size, now_ns = self._body_c, self._template.size, perf_counter_ns()
        for sequence in range(self.sent, self.sent + number):
            tag = take_tag()
            delivery = new_delivery(link, tag)
            stamp(sequence, now_ns)
            send(link, body, size)
            advance(link)
            pending[delivery] = (tag, now_ns)
        self.sent += number
        self._left -= number
        return True

    def _on_delivery(self, delivery: Any) -> None:
        found = self._pending.get(delivery)
        if found is None:
            return
        state = lib.pn_delivery_remote_state(delivery)
        if state == cproton.PN_ACCEPTED:
            self._acked += 1
            self._tally.latencies_ns.append(perf_counter_ns() - found[1])
        elif state or lib.pn_delivery_settled(delivery):
            self._outcomes.add(OUTCOME_NAMES.get(state, "settled without an outcome"), _rejection(delivery, state))
        else:
            return
        del self._pending[delivery]
        self._tags.append(found[0])
        lib.pn_delivery_settle(delivery)

    def counted(self, now_ns: int, window: Window) -> None:
        """Add the acknowledgements of one read to the tally."""
        if self._acked:
            self._tally.count(self._acked, now_ns, window)
            self._acked = 0


def _rejection(delivery: Any, state: int) -> str | None:
    if state != cproton.PN_REJECTED:
        return None
    return describe(lib.pn_disposition_condition(lib.pn_delivery_remote(delivery)))
