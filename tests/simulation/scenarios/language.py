"""Scenario scripts: a small language for stories about one group, with the full expected trace under each step.

    # What the story is about.
    nodes 3                      (options: name=value of RaftOptions)
    elect 1
    ----
    1 leads t1, ready

`python -m tests.simulation.scenarios.language [--rewrite] [files]` runs them; `--rewrite` writes down what happened,
for a reviewer to read. The first line of a script says what it is about; commands are in `COMMANDS`.

Rejected: assertions instead of traces. A trace shows also what nobody thought of asserting.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any

from cluster.raft import ENTRY_REGULAR, RaftMessage, RaftOptions
from cluster.raft.replication.message_encoding import Stamp
from tests.simulation.scenarios.stage import GROUP, Pair, Stage, describe

DIRECTORY = Path(__file__).parent
"""Scripts lie in folders by their subject."""
RULE = "----"
COMMANDS: dict[str, Callable[[Any, list[str]], None]] = {}


class WrongStep(Exception):
    """The script is, not the code."""


def command(run: Callable[[Any, list[str]], None]) -> Callable[[Any, list[str]], None]:
    COMMANDS[run.__name__.strip("_")] = run
    return run


class Script:
    def __init__(self) -> None:
        self.stage: Stage

    def run(self, line: str) -> list[str]:
        """One command; what happened."""
        name, *words = line.split()
        if name not in COMMANDS:
            raise WrongStep(f"there is no command {name!r}; there are {', '.join(sorted(COMMANDS))}")
        COMMANDS[name](self, words)
        self.stage.settle()
        happened, self.stage.lines = self.stage.lines, []
        return happened


NEVER_S = 1e9
"""Scripts show each heartbeat of a leader, unless they are about groups that fall silent."""


def options_of(words: list[str]) -> RaftOptions:
    types = {field.name: type(getattr(RaftOptions(), field.name)) for field in fields(RaftOptions)}
    chosen: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in types:
            raise WrongStep(f"RaftOptions has no {name!r}")
        chosen[name] = value == "yes" if types[name] is bool else types[name](value)
    chosen.setdefault("quiesce_after_s", NEVER_S)
    return RaftOptions(**chosen)


def pair_of(word: str) -> Pair:
    sender, _, receiver = word.partition("->")
    return int(sender), int(receiver)


def data_of(word: str) -> bytes:
    """`abc` is a command, `\\x02abc` an entry with another first byte."""
    raw = word.encode().decode("unicode_escape").encode("latin-1")
    return raw if word.startswith("\\x") else ENTRY_REGULAR + raw


# ---------------------------------------------------------------- nodes


@command
def nodes(script: Script, words: list[str]) -> None:
    """nodes 3 [option=value ...]: that many, started."""
    stage_(script, words)
    for node in script.stage.ids:
        script.stage.start(node)


@command
def stage_(script: Script, words: list[str]) -> None:
    """stage 3 [option=value ...]: that many, not started."""
    script.stage = Stage(int(words[0]), options_of(words[1:]))


@command
def preset(script: Script, words: list[str]) -> None:
    """preset 1 t7 1 1 4 4: node 1, not started, is in term 7, with entries of these terms from index 2 on."""
    script.stage.preset(int(words[0]), int(words[1][1:]), [int(word) for word in words[2:]])


@command
def start(script: Script, words: list[str]) -> None:
    """start 1 2 ..."""
    for word in words:
        script.stage.start(int(word))


@command
def wipe(script: Script, words: list[str]) -> None:
    """wipe 1: its disk is replaced by an empty one, and it starts again, knowing that."""
    node = int(words[0])
    if node in script.stage.multirafts:
        script.stage.stop(node, power_loss=False)
    script.stage.disks[node] = type(script.stage.disks[node])()
    script.stage.start(node, mute=True)


@command
def copy(script: Script, words: list[str]) -> None:
    """copy 1: an image of its disk as it is now, for `restore`."""
    node = int(words[0])
    script.stage.images[node] = deepcopy(script.stage.disks[node])


@command
def restore(script: Script, words: list[str]) -> None:
    """restore 1: of a node that is down; its disk is the older image from here on."""
    node = int(words[0])
    script.stage.disks[node] = deepcopy(script.stage.images[node])


@command
def crash(script: Script, words: list[str]) -> None:
    """crash 1 [power] [unnoticed]: killed; `power`: what was not synced is gone; `unnoticed`: connections stay up."""
    script.stage.stop(int(words[0]), power_loss="power" in words, noticed="unnoticed" not in words)


@command
def damage(script: Script, words: list[str]) -> None:
    """damage 1 vote|checkpoint|INDEX: on the disk of a node that is down."""
    script.stage.damage(int(words[0]), words[1])


@command
def hold(script: Script, words: list[str]) -> None:
    """hold 1: its next sync takes until `sync 1`."""
    script.stage.held[int(words[0])] = None


@command
def sync(script: Script, words: list[str]) -> None:
    """sync 1"""
    script.stage.sync(int(words[0]))


# ---------------------------------------------------------------- time and elections


@command
def tick(script: Script, words: list[str]) -> None:
    """tick 0.1: the clock goes on, who is due has a turn; nothing is delivered."""
    script.stage.clock.now += float(words[0])


@command
def live(script: Script, words: list[str]) -> None:
    """live 0.5: time passes and messages arrive; they are not written down."""
    script.stage.live(float(words[0]))


@command
def campaign(script: Script, words: list[str]) -> None:
    """campaign 1: at once, as if the leader had ordered it."""
    script.stage.campaign(int(words[0]))


@command
def doubt(script: Script, words: list[str]) -> None:
    """doubt 1: it has not heard the leader for too long."""
    script.stage.doubt(int(words[0]))


@command
def elect(script: Script, words: list[str]) -> None:
    """elect 1: it campaigns, and everything is delivered; messages are not written down."""
    stage = script.stage
    stage.hides_messages = True
    stage.campaign(int(words[0]))
    stage.settle()
    stage.deliver_all()
    stage.live(0.05)
    stage.hides_messages = False


@command
def transfer(script: Script, words: list[str]) -> None:
    """transfer 1 2: node 1 is to hand leadership to node 2."""
    script.stage.group(int(words[0])).transfer(int(words[1]))


# ---------------------------------------------------------------- input


@command
def propose(script: Script, words: list[str]) -> None:
    """propose 1 a b c: three commands to node 1."""
    for word in words[1:]:
        script.stage.propose(int(words[0]), data_of(word))


@command
def fill(script: Script, words: list[str]) -> None:
    """fill 1 x 20: x1 to x20 to node 1."""
    for number in range(1, int(words[2]) + 1):
        script.stage.propose(int(words[0]), ENTRY_REGULAR + f"{words[1]}{number}".encode())


@command
def read(script: Script, words: list[str]) -> None:
    """read 1: a confirmed read."""
    script.stage.read(int(words[0]))


@command
def trim(script: Script, words: list[str]) -> None:
    """trim 1 5: node 1 is to forget entries up to 5."""
    script.stage.group(int(words[0])).trim(int(words[1]))


# ---------------------------------------------------------------- messages


@command
def deliver(script: Script, words: list[str]) -> None:
    """deliver: all, until nothing is under way; deliver 1->2 [2]: what is under way there now, or so many of it."""
    if not words:
        script.stage.deliver_all()
    else:
        pair = pair_of(words[0])
        script.stage.deliver(pair, int(words[1]) if len(words) > 1 else len(script.stage.queues[pair]))


@command
def drop(script: Script, words: list[str]) -> None:
    """drop 1->2 ...: lose what is under way there; drop: everywhere."""
    stage = script.stage
    for pair in [pair_of(word) for word in words] or list(stage.queues):
        stage.queues[pair].clear()


@command
def save(script: Script, words: list[str]) -> None:
    """save 1->2 old: remember the first message under way there, for `again`."""
    script.stage.saved[words[1]] = script.stage.queues[pair_of(words[0])][0]


@command
def again(script: Script, words: list[str]) -> None:
    """again 1->2 old: it arrives (once more)."""
    message = script.stage.saved[words[1]]
    script.stage.note(f"{words[0]} again: {describe(message)}")
    script.stage.inject(pair_of(words[0]), message)


@command
def forge(script: Script, words: list[str]) -> None:
    """forge 9->1 vote|prevote|yes|alive|stale|append term=3 [index=5 last=2 version=2]: a message from nobody."""
    values = {name: int(value) for name, _, value in (word.partition("=") for word in words[2:])}
    stamp, term = Stamp(GROUP, values.get("version", 1)), values["term"]
    last = (values.get("index", 1), values.get("last", 0))
    made: dict[str, Callable[[], RaftMessage]] = {
        "vote": lambda: stamp.vote_request(term, last),
        "prevote": lambda: stamp.vote_request(term, last, pre=True),
        "yes": lambda: stamp.vote_reply(term, granted=True),
        "alive": lambda: stamp.append(term, 1, values.get("commit", 0), None),
        "append": lambda: stamp.append(term, 1, values.get("commit", 0), last),
        "stale": lambda: stamp.stale_term(term),
    }
    message = made[words[1]]()
    script.stage.note(f"{words[0]} forged: {describe(message)}")
    script.stage.inject(pair_of(words[0]), message)


@command
def cut(script: Script, words: list[str]) -> None:
    """cut 1->2 3 ...: that link; all links of node 3, both ways. What is under way there is lost."""
    stage = script.stage
    for word in words:
        pairs = [pair_of(word)] if "->" in word else [pair for pair in stage.queues if int(word) in pair]
        for pair in pairs:
            stage.cut.add(pair)
            stage.queues[pair].clear()


@command
def heal(script: Script, words: list[str]) -> None:
    """heal [1->2 3 ...]: those links, or all."""
    stage = script.stage
    for pair in list(stage.cut):
        named = f"{pair[0]}->{pair[1]}" in words or str(pair[0]) in words or str(pair[1]) in words
        if named or not words:
            stage.cut.discard(pair)


# ---------------------------------------------------------------- looking


@command
def log(script: Script, words: list[str]) -> None:
    """log [1 ...]: logs as they are."""
    for node in [int(word) for word in words] or script.stage.ids:
        script.stage.note(script.stage.show(node))


@command
def match(script: Script, words: list[str]) -> None:
    """match 1: what it, as leader, takes the others to hold."""
    node = int(words[0])
    group = script.stage.group(node)
    held = [f"{peer} up to {group.match_index(peer)}" for peer in group.members if peer != node]
    script.stage.note(f"{node} takes to be held: {', '.join(held)}")


@command
def expect(script: Script, words: list[str]) -> None:
    """expect leader 1|none; expect applied 2 a b; expect commit 2 5"""
    stage, what = script.stage, words[0]
    if what == "leader":
        found = [str(node) for node in sorted(stage.multirafts) if stage.group(node).is_leader] or ["none"]
        wanted = words[1:]
    elif what == "applied":
        found, wanted = [one.decode() for one in stage.machines[int(words[1])].applied], words[2:]
    elif what == "commit":
        found, wanted = [str(stage.group(int(words[1])).commit_index)], words[2:]
    else:
        raise WrongStep(f"nothing is known of {what!r}")
    if found != wanted:
        raise AssertionError(f"expected {what} {' '.join(wanted)}, found {' '.join(found)}")


# ---------------------------------------------------------------- files


def play(text: str) -> str:
    """The script with what happened under each command."""
    script, out = Script(), []
    skipping = False
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        for line in text.splitlines():
            if line == RULE:
                skipping = True
            elif not line.strip():
                skipping = False
                out.append("")
            elif line.startswith("#"):
                out.append(line)
            elif not skipping:
                out.append(line)
                happened = script.run(line)
                if happened:
                    out += [RULE, *happened]
                    skipping = True
    finally:
        logging.disable(before)
    return "\n".join(out).rstrip() + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.scenarios.language", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, default=sorted(DIRECTORY.rglob("*.txt")))
    parser.add_argument("--rewrite", action="store_true", help="write down what happened as what is expected")
    arguments = parser.parse_args()
    different = 0
    for path in arguments.files:
        text = path.read_text(encoding="utf-8")
        played = play(text)
        if played == text:
            continue
        different += 1
        if arguments.rewrite:
            path.write_text(played, encoding="utf-8")
        print(f"{path.name}: {'written anew' if arguments.rewrite else 'comes out otherwise'}")
    print(f"{len(arguments.files)} scripts, {different} otherwise")
    return 1 if different and not arguments.rewrite else 0


if __name__ == "__main__":
    sys.exit(main())
