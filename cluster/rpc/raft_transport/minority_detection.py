"""Contact with the peers: a node is cut off if those out of touch could lead everything without it.

The problem: a node whose links stand still or swallow what it sends knows nothing of what the others do. While it
waits for news, its clients wait, too, although a new leader serves those of other nodes.

The rule: a node is in touch with a peer while both streams stand and something was heard within `OUT_OF_TOUCH_S`. It is
cut off when it has been out of touch for `CUT_OFF_S` with so many that they are a majority by themselves. Of two nodes
neither ever is: the other one could do nothing alone, so waiting for it is all that there is.

Rejected: leaving it to the groups. Elections tell a member that it does not lead, and not that somebody else may.
Rejected: to ask which nodes are *up*. A stream that stands still counts as up for `SILENCE_S`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from cluster.rpc import options


class MinorityDetector:
    def __init__(self, peers: Collection[int], on_change: Callable[[], None]) -> None:
        """`on_change` is called when this node loses touch with a peer or finds it again, and when it is cut off or is
        so no longer."""
        self._lost_s: dict[int, float | None] = dict.fromkeys(peers)  # since when; None: in touch
        self._on_change = on_change
        self.cut_off = False

    def begin(self, now_s: float) -> None:
        """Begin while the streams are being dialled; nodes that start together need a moment."""
        for peer in self._lost_s:
            self._lost_s[peer] = now_s + options.FIRST_TOUCH_S

    def add(self, peer: int, now_s: float) -> None:
        """Watch a node that has just become a peer."""
        self._lost_s[peer] = now_s + options.FIRST_TOUCH_S

    def forget(self, peer: int, now_s: float) -> None:
        """Watch a node no more."""
        del self._lost_s[peer]
        self._judge(now_s, changed=True)

    def in_touch(self, peer: int) -> bool:
        return peer in self._lost_s and self._lost_s[peer] is None

    def lost_s(self, peer: int, now_s: float) -> float:
        """Seconds that this node has been out of touch with the peer; 0: it is in touch, or has just begun to dial."""
        since_s = self._lost_s.get(peer)
        return 0.0 if since_s is None else max(0.0, now_s - since_s)

    def lost(self, peer: int, now_s: float) -> None:
        """Note that a stream to or from a peer has ended."""
        if self._lost_s.get(peer, 0.0) is None:
            self._lost_s[peer] = now_s
            self._judge(now_s, changed=True)

    def look(self, in_touch: Callable[[int], bool], now_s: float, late_s: float = 0.0) -> None:
        """Note which peers are in touch. `late_s`: this process stood still for so long, which proves nothing about the
        others."""
        before = [since is None for since in self._lost_s.values()]
        for peer, since_s in self._lost_s.items():
            if in_touch(peer):
                self._lost_s[peer] = None
            elif since_s is None:
                self._lost_s[peer] = now_s
            else:
                self._lost_s[peer] = max(since_s, min(now_s, since_s + late_s))
        self._judge(now_s, changed=before != [since is None for since in self._lost_s.values()])

    def _judge(self, now_s: float, *, changed: bool) -> None:
        away = sum(since is not None and now_s - since >= options.CUT_OFF_S for since in self._lost_s.values())
        before, self.cut_off = self.cut_off, away >= (len(self._lost_s) + 1) // 2 + 1
        if changed or self.cut_off != before:
            self._on_change()
