"""The board on which moves are wished: it stands for the metadata group, whose state each node hears of late.

It is a log that only grows. A node has read a part of it; one that starts again may read it anew from the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cluster.metadata import MoveRecord, PartitionRecord
from cluster.raft.membership.changes import Wish
from cluster.raft.membership.configuration import Configuration, Replica, founding
from node.movement.lifecycle import LostBelow
from tests.simulation.checker import Violation

if TYPE_CHECKING:
    from tests.simulation.moving.judge import MovingJudge

FIRST_BIRTH = 2


@dataclass(frozen=True)
class Begun:
    group: int
    wish: Wish


@dataclass(frozen=True)
class Cancelled:
    group: int
    move: int


@dataclass(frozen=True)
class Finished:
    group: int
    move: int
    configuration: Configuration


Posting = Begun | Cancelled | Finished


@dataclass
class GroupWishes:
    """One group, as a reader of the board knows it."""

    founders: tuple[int, ...]
    configuration: Configuration
    """The settled one."""
    wish: Wish | None = None
    had_a_move: bool = False

    def birth_on(self, node: int) -> int | None:
        """Birth of the replica that the node is to have; None: none."""
        wanted = {*self.configuration.replicas}
        if self.wish is not None:
            wanted |= {replica for replica in (self.wish.voter, self.wish.learner) if replica is not None}
        return next((replica.birth for replica in wanted if replica.node == node), None)

    def as_record(self, group: int) -> PartitionRecord:
        """The group as the metadata of a node have it."""
        settled, wish = sorted(self.configuration.replicas), self.wish
        move = None if wish is None else MoveRecord(wish.move, wish.version, wish.voter or wish.learner, wish.gone)
        return PartitionRecord(
            "0", group, tuple(one.node for one in settled), tuple(one.birth for one in settled), self.founders,
            self.configuration.version, move=move,
        )  # fmt: skip


@dataclass
class Board:
    judges: dict[int, MovingJudge]
    founders: dict[int, tuple[int, ...]]
    postings: list[Posting] = field(default_factory=list)
    lost_below: dict[int, int] = field(default_factory=dict)
    """By node: replicas of a lower birth were there when its disk was lost."""
    next_birth: int = FIRST_BIRTH
    next_move: int = 1
    is_held: bool = False
    """The metadata have no majority: nothing can be posted."""

    @property
    def length(self) -> int:
        return len(self.postings)

    def read(self, seen: int, reader: int = 0) -> dict[int, GroupWishes]:
        """What somebody knows that has read so many postings."""
        groups = {group: GroupWishes(nodes, founding(nodes)) for group, nodes in self.founders.items()}
        for posting in self.postings[:seen]:
            known = groups[posting.group]
            if isinstance(posting, Begun):
                known.wish, known.had_a_move = posting.wish, True
            elif isinstance(posting, Cancelled):
                if known.wish is not None:
                    known.wish = replace(known.wish, is_cancelled=True)
            else:
                known.wish, known.configuration = None, posting.configuration
        return groups

    def now(self) -> dict[int, GroupWishes]:
        return self.read(len(self.postings))

    def begin(self, group: int, *, voter: int | None = None, learner: Replica | None = None,
              gone: Replica | None = None) -> None:  # fmt: skip
        known = self.now()[group]
        add = None
        if voter is not None:
            standing = [replica for replica in known.configuration.learners if replica.node == voter]
            add = standing[0] if standing else Replica(voter, self.next_birth)
            self.next_birth += 1
        wish = Wish(self.next_move, known.configuration.version, voter=add, learner=learner, gone=gone)
        self.next_move += 1
        self.postings.append(Begun(group, wish))

    def cancel(self, group: int) -> None:
        wish = self.now()[group].wish
        if wish is not None and not wish.is_cancelled:
            self.postings.append(Cancelled(group, wish.move))

    def finish(self, group: int, wish: Wish, configuration: Configuration) -> None:
        """A leader reports that the move is over, by a committed configuration; late ones report it again."""
        known = self.now()[group]
        if self.is_held or known.wish is None or known.wish.move != wish.move:
            return
        judge = self.judges[group]
        if judge.configurations.get(configuration.version) != configuration:
            raise Violation(f"group {group}: {configuration} is reported, and was not committed")
        if configuration.version <= known.configuration.version:
            raise Violation(f"group {group}: {configuration} is reported behind {known.configuration}")
        if is_cancelled(wish, configuration):
            judge.told_cancelled.add(wish.move)
            judge.check_told()
        self.postings.append(Finished(group, wish.move, configuration))

    # ---- disks

    def disk_lost(self, node: int, incarnation: int) -> None:
        """A node goes on with an empty disk; all know it at once."""
        self.lost_below[node] = self.next_birth

    def lost_on(self, node: int, number: int, seen: int) -> LostBelow:
        """What the node knows to have lost, of this group."""
        below = self.lost_below.get(node, 0)
        return LostBelow(number + 1 if below else 0, below)

    def knows(self, node: int, incarnation: int, seen: int) -> bool:
        """Whether the node has read of its own disk."""
        return True


def is_cancelled(wish: Wish, configuration: Configuration) -> bool:
    return wish.voter is not None and wish.voter not in configuration.voters
