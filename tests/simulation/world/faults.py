"""What goes wrong in a schedule: links, processes, disks, clocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.world.identity.impostors import Impostors
from tests.simulation.world.identity.older_copies import OlderCopies
from tests.simulation.world.network import SimLink

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

HALF_A_DAY_MS = 43_200_000
CLOCK_JUMPS_MS = (-3_600_000, -2_000, 2_000, 3_600_000)


class Faults:
    """Each fault answers whether it did anything."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._randomness = schedule.randomness
        self._wrong_clock: Any = None
        self.copies = OlderCopies(schedule)
        self.impostors = Impostors(schedule)
        self._kinds: dict[str, Callable[[], bool]] = {name: getattr(self, f"_{name}") for name in schedule.plan.weights}

    def one(self) -> None:
        if self.copies.awaited:
            return
        weights = self._schedule.plan.weights
        name = self._randomness.choices(list(weights), list(weights.values()))[0]
        if self._kinds[name]():
            self._schedule.count(name)

    def _trace(self, text: str) -> None:
        self._schedule.trace(f"FAULT {text}")

    # ---- links

    def _some_link(self) -> SimLink | None:
        links = self._schedule.links
        return links[self._randomness.choice(list(links))] if links else None

    def _stall(self) -> bool:
        link = self._some_link()
        if link is None:
            return False
        seconds = self._randomness.choice((0.02, 0.1, 0.5, 1.5))
        self._trace(f"stall {link.sender} -> {link.receiver} {seconds} s")
        link.stall(seconds)
        return True

    def _reset(self) -> bool:
        link = self._some_link()
        if link is None or link.is_cut:
            return False
        self._trace(f"reset {link.sender} -> {link.receiver}")
        link.reset(wild=self._schedule.plan.wild)
        return True

    def _replay(self) -> bool:
        link = self._some_link()
        if link is None:
            return False
        self._trace(f"replay {link.sender} -> {link.receiver}")
        link.replay()
        return True

    def _stutter(self) -> bool:
        link = self._some_link()
        if link is None:
            return False
        self._trace(f"stutter {link.sender} -> {link.receiver}")
        link.stutter(self._randomness.uniform(0.05, 1.0))
        return True

    def _noticed_after(self) -> float | None:
        return self._randomness.choice((None, 0.02, 1.0))

    def _cut(self) -> bool:
        link = self._some_link()
        if link is None or link.is_cut:
            return False
        self._trace(f"cut {link.sender} -> {link.receiver}")
        link.cut(noticed_after=self._noticed_after())
        return True

    def _isolate(self) -> bool:
        node = self._some_node().id
        self._trace(f"isolate {node}")
        self._cut_all({(a, b) for a, b in self._schedule.links if node in (a, b)})
        return True

    def _split(self) -> bool:
        """Two parts that hear nothing of each other, or one of them nothing of the other."""
        ids = list(self._schedule.node_ids)
        self._randomness.shuffle(ids)
        part = set(ids[: self._randomness.randint(1, len(ids) - 1)]) if len(ids) > 1 else set()
        one_way = self._randomness.random() < 0.5
        self._trace(f"split off {sorted(part)}{', one way' if one_way else ''}")
        self._cut_all(
            {
                (a, b)
                for a, b in self._schedule.links
                if (a in part and b not in part) or (not one_way and b in part and a not in part)
            }
        )
        return bool(part)

    def _cut_all(self, pairs: set[tuple[int, int]]) -> None:
        noticed_after = self._noticed_after()
        for pair, link in self._schedule.links.items():
            if pair in pairs:
                link.cut(noticed_after=noticed_after)

    def _heal(self) -> bool:
        self._trace("heal links")
        for link in self._schedule.links.values():
            link.heal()
        return False  # not a fault

    # ---- processes

    def _some_node(self) -> Any:
        """Leaders suffer more often than others."""
        nodes = self._schedule.nodes
        if self._randomness.random() < 0.4:
            groups = list(self._schedule.judges)
            group_id = self._randomness.choice(groups) if groups else 0
            leaders = [node for node in nodes.values() if node.leads(group_id)]
            if leaders:
                return self._randomness.choice(leaders)
        return nodes[self._randomness.choice(self._schedule.node_ids)]

    def _crash(self) -> bool:
        return self.crash(self._some_node())

    def _crash_all(self) -> bool:
        return any([self.crash(node) for node in self._schedule.nodes.values()])  # noqa: C419 - all of them

    def _bounce(self) -> bool:
        """A supervisor restarts the process at once."""
        return self.bounce(self._some_node(), down_s=self._randomness.uniform(0.002, 0.1))

    def bounce(self, node: Any, down_s: float) -> bool:
        crashed = self.crash(node)
        self._schedule.at(self._schedule.now + down_s, lambda: self._schedule.start(node))
        return crashed

    def voted(self, node: Any) -> None:
        """A node has just given its vote away: the moment at which forgetting it hurts most."""
        schedule, randomness = self._schedule, self._randomness
        happening = schedule.chaos_begun and not schedule.chaos_over
        if happening and randomness.random() < schedule.plan.bounce_voters:
            schedule.at(schedule.now + randomness.uniform(0.0, 0.02), lambda: self._bounce_voter(node))
        if happening and schedule.plan.wipe_voters and randomness.random() < schedule.plan.wipe_voters:
            schedule.at(schedule.now + randomness.uniform(0.0, 0.02), lambda: self._wipe_voter(node))

    def _wipe_voter(self, node: Any) -> None:
        if not self._schedule.chaos_over and self._replace(node):
            self._schedule.count("wipe_voter")

    def _bounce_voter(self, node: Any) -> None:
        if not self._schedule.chaos_over and self.bounce(node, down_s=0.001):
            self._schedule.count("bounce_voter")

    def crash(self, node: Any) -> bool:
        if not node.is_running:
            return False
        plan, randomness = self._schedule.plan, self._randomness
        power = plan.power_loss and randomness.random() < 0.7
        self._trace(f"{'power loss' if power else 'kill'} {node.id}")
        node.crash(lose_unsynced=power)
        for (a, b), link in self._schedule.links.items():
            if node.id == b and link.is_up and randomness.random() < 0.7:
                link.reset(wild=plan.wild)
            elif node.id == a and plan.wild is False:
                link.reset(wild=False)
        return True

    def _start(self) -> bool:
        down = [node for node in self._schedule.nodes.values() if not node.is_running and not node.is_damaged]
        if down:
            self._schedule.start(self._randomness.choice(down))
        return False  # not a fault

    def _upgrade(self) -> bool:
        """Somebody installs the later release on a node."""
        return bool(self._some_node().install(later=True))

    def _downgrade(self) -> bool:
        """Somebody installs the earlier release on a node, whether that may be or not."""
        return bool(self._some_node().install(later=False))

    def _pause(self) -> bool:
        node = self._some_node()
        if not node.is_running:
            return False
        seconds = self._randomness.choice((0.05, 0.3, 1.0, 2.0))
        self._trace(f"pause {node.id} {seconds} s")
        node.pause(seconds)
        return True

    def _transfer(self) -> bool:
        moved = False
        for group_id in self._schedule.judges:
            for node in self._schedule.nodes.values():
                if node.leads(group_id):
                    group = node.multiraft.groups[group_id]
                    assert group.configuration is not None
                    group.transfer(self._randomness.choice(sorted(group.configuration.voters)).node)
                    moved = True
        return moved

    # ---- what a node stands on

    def _clock(self) -> bool:
        node = self._some_node()
        if not node.is_running:
            return False
        jump_ms = self._randomness.choice(CLOCK_JUMPS_MS)
        self._trace(f"the clock of {node.id} jumps by {jump_ms} ms")
        node.clock.jumped_ms += jump_ms
        return True

    def _days(self) -> bool:
        """The clock of one node, in a schedule always the same, is days ahead: the others must keep the time."""
        node = self._wrong_clock = self._wrong_clock or self._some_node()
        if not node.is_running or len(self._schedule.nodes) < 3 or abs(node.clock.jumped_ms) > HALF_A_DAY_MS:
            return False
        days = self._randomness.choice((2, 30))  # of two clocks that are heard the earlier counts, right or wrong
        self._trace(f"the clock of {node.id} jumps by {days} days")
        node.clock.jumped_ms += days * 2 * HALF_A_DAY_MS
        return True

    def _wipe(self) -> bool:
        """A disk is lost, or one that was refused is given up."""
        node = self._some_node()
        return self._replace(node)

    def replace_the_damaged(self) -> None:
        for node in self._schedule.nodes.values():
            if node.is_damaged and self._replace(node):
                self._schedule.count("replaced")

    def _replace(self, node: Any) -> bool:
        """Only where the others can make up for it: more at a time is more than any majority bears."""
        schedule = self._schedule
        for other in schedule.nodes.values():
            other.readmission.look()
            if other.lacks_memory or (other is not node and not other.disk.is_sound):
                return False
        if not schedule.load.can_lose(node):
            return False
        self._trace(f"the disk of {node.id} is replaced by an empty one")
        node.replace()
        schedule.load.readmit(node)
        if schedule.plan.wipe_voters and self._randomness.random() < 0.5:  # what it says of itself has to last
            after_s = self._randomness.uniform(0.0, 0.3)
            schedule.at(schedule.now + after_s, lambda: self._bounce_the_wiped(node))
        return True

    def _bounce_the_wiped(self, node: Any) -> None:
        if not self._schedule.chaos_over:
            self.bounce(node, down_s=0.002)

    def _all_are_sound(self) -> bool:
        """One store at a time is harmed: the others must go on without it."""
        for node in self._schedule.nodes.values():
            node.readmission.look()
            if not node.disk.is_sound or node.lacks_memory:
                return False
        return True

    def _sync_error(self) -> bool:
        node = self._some_node()
        if not self._all_are_sound() or not node.is_running:
            return False
        self._trace(f"the next sync of {node.id} fails")
        node.disk.failing = True
        return True

    def _slow_disk(self) -> bool:
        """Until the end of the faults; a minority at a time."""
        nodes = self._schedule.nodes.values()
        if 2 * sum(node.disk.slow for node in nodes) + 2 >= len(nodes):
            return False
        node = self._some_node()
        self._trace(f"the disk of {node.id} is slow from now on")
        node.disk.slow = True
        return True

    def _image(self) -> bool:
        """Somebody makes a backup of a node's disk."""
        node = self._some_node()
        self.copies.take(node)
        self.impostors.take(node)
        return False  # not a fault

    def _roll_back(self) -> bool:
        """A node comes back with an older copy of its disk."""
        node = self._some_node()
        if not self._all_are_sound() or not all(other.is_running for other in self._schedule.nodes.values()):
            return False
        self._trace(f"{node.id} may come back with an older copy of its disk")
        return self.copies.put_back(node)

    def _impostor(self) -> bool:
        """A node comes back with a copy of its disk from before it was started last."""
        node = self._some_node()
        self._trace(f"{node.id} may come back as it was at an earlier start")
        return self.impostors.put_back(node)

    def _twin(self) -> bool:
        """Such a copy runs beside the original."""
        node = self._some_node()
        self._trace(f"{node.id} may run twice")
        return self.impostors.beside(node)

    def _flip(self) -> bool:
        if not self._all_are_sound():
            return False
        node = self._some_node()
        if not node.disk.flip(self._randomness):
            return False
        self._trace(f"a bit turns on the disk of {node.id}")
        return True
