"""A history without a flaw, small enough to be read, in which every checker has something to judge; and what a damage
of it looks like, one for each thing that a checker is to see.

Partition 0 is fed by producers `a` (with a successor of a greater epoch) and `b`, and by transactions; partition 1 by
transactions. `t1` is committed, `t2` rolled back, `t3` takes what `t2` had taken from partition 0 and makes values of
it in partition 1. Seconds are counted from 0; a call takes half of one. Partition 2 is sent to while something happens
to ZooKeeper, in which the nodes are registered, and nobody reads it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from chaos.history.history import History
from chaos.history.tables import (
    COMMITTED,
    FAIL,
    INFO,
    OK,
    UNCOMMITTED,
    CommitRow,
    ComplaintRow,
    FaultRow,
    InputRow,
    LeaderRow,
    OpRow,
    ReadRow,
    RegisterRow,
    RegistrationRow,
    ReplicaDumpRow,
    SendRow,
    TransactionRow,
    WatermarkRow,
)

S = 1_000_000_000
NODES = (1, 2, 3)
SOURCES = ((2, "b:0"), (3, "a:2"))


class SyntheticStory:
    """Tells a history call by call."""

    def __init__(self) -> None:
        self.history = History()
        self.logs: dict[int, list[str]] = {0: [], 1: []}
        self.hidden: set[str] = set()  # values that committed readers never get
        self._numbers = itertools.count(1)
        self._at_s = 1.0

    def call(self, process: str, f: str, outcome: str = OK, *, at_s: float | None = None) -> int:
        number = next(self._numbers)
        at_ns = int((self._at_s if at_s is None else at_s) * S)
        self.history.ops.append(
            OpRow(number, process, None, f, outcome, at_ns, at_ns + S // 2, None, None, at_ns + 10 * S)
        )
        if at_s is None:
            self._at_s += 1.0
        return number

    def send(
        self, producer: str, epoch: int | None, partition: int, values: Sequence[str], *, outcome: str = OK,
        first: int = 0, txn: str | None = None, stored: bool = True,
    ) -> int:  # fmt: skip
        number = self.call(producer, "produce", outcome)
        for place, value in enumerate(values):
            offset = len(self.logs[partition]) if stored and txn is None and outcome == OK else None
            if stored:
                self.logs[partition].append(value)
            seq = None if epoch is None else first + place
            self.history.sends.append(SendRow(number, value, partition, producer, epoch, seq, txn, outcome, offset))
        return number

    def decide(self, txn: str, decision: str, outcome: str = OK) -> None:
        begun_ns = int((self._at_s - 1) * S)
        number = self.call(txn, f"txn-{decision}", outcome)
        self.history.transactions.append(TransactionRow(txn, txn, number, decision, outcome, begun_ns))
        if decision == "abort":
            self.hidden |= {send.msg_id for send in self.history.sends if send.txn == txn}

    def read(
        self, reader: str, partition: int, offsets: Sequence[int], *, f: str = "poll", session: int = 0,
        group: str | None = None, generation: int | None = None, isolation: str = COMMITTED, at_s: float | None = None,
    ) -> int:  # fmt: skip
        number = self.call(reader, f, at_s=at_s)
        kept = [one for one in offsets if isolation == UNCOMMITTED or self.logs[partition][one] not in self.hidden]
        self.history.reads += [
            ReadRow(
                number, self.logs[partition][offset], True, partition, offset, reader, session, group, generation,
                isolation, pos, None,
            )
            for pos, offset in enumerate(kept)
        ]  # fmt: skip
        return number

    def commit(self, member: str, generation: int, partition: int, offset: int) -> None:
        number = self.call(member, "commit")
        self.history.commits.append(CommitRow(number, "g", member, generation, partition, offset))

    def ask(self, process: str, **told: int) -> None:
        number = self.call(process, "latest")
        self.history.watermarks.append(WatermarkRow(number, process, 0, **told))


def clean() -> SyntheticStory:
    story = SyntheticStory()
    story.send("a", 0, 0, ["a:0", "a:1"])
    story.send("b", 0, 0, ["b:0"])
    story.send("a", 1, 0, ["a:2"])
    story.send("b", 0, 0, ["b:1"], first=1)
    story.send("c", None, 0, ["c:0"], outcome=INFO, stored=False)  # nobody knows, and it is not there
    story.send("c", None, 0, ["c:1"], outcome=FAIL, stored=False)
    story.send("t", None, 0, ["t:0", "t:1", "t:2"], txn="t1")
    story.send("t", None, 1, ["t:3", "t:4"], txn="t1")
    story.decide("t1", "commit")
    story.send("t", None, 1, ["t:5", "t:6"], txn="t2")
    story.decide("t2", "abort")
    story.history.inputs += [InputRow("t2", f"t:{5 + n}", 0, at, value) for n, (at, value) in enumerate(SOURCES)]
    story.send("t", None, 1, ["t:7", "t:8"], txn="t3")
    story.history.inputs += [InputRow("t3", f"t:{7 + n}", 0, at, value) for n, (at, value) in enumerate(SOURCES)]
    story.decide("t3", "commit")
    story.history.commits.append(CommitRow(story.history.transactions[-1].op_id, "p", "w", 1, 0, 3, "t3"))
    story.send("a", 1, 0, ["a:3"], first=1)
    story.ask("watcher", earliest=0, latest=9, stable=5)
    story.ask("watcher", earliest=0, latest=9, stable=9)
    _read_all(story)
    _while_zookeeper_fails(story)
    _while_a_node_is_down(story)
    _operators(story)
    history = story.history
    history.faults.append(FaultRow("1.F1", "F1 kill leader", "node 1", 2 * S, 3 * S, 4 * S, 5 * S))
    history.leaders += [LeaderRow(7, 0, 1, 1, S), LeaderRow(7, 0, 2, 2, 3 * S), LeaderRow(8, 1, 1, 3, S)]
    for node, (partition, log) in itertools.product(NODES, story.logs.items()):
        history.replica_dump += [
            ReplicaDumpRow(node, partition, offset, 1 if offset < 2 else 2, value, 7)
            for offset, value in enumerate(log)
        ]
    return story


def register(
    story: SyntheticStory, f: str, value: int | None, at_s: float, took_s: float = 0.4, *, name: str = "retention",
    outcome: str = OK,
) -> None:  # fmt: skip
    number = story.call("operator", "alter" if f == "write" else "describe", outcome, at_s=at_s)
    times = int(at_s * S), int((at_s + took_s) * S)
    story.history.ops[-1] = story.history.ops[-1]._replace(t_end_ns=times[1])
    story.history.registers.append(RegisterRow(number, name, f, value, outcome, *times))


def _operators(story: SyntheticStory) -> None:
    register(story, "read", 0, 20.0)
    register(story, "write", 1, 21.0)
    register(story, "read", 1, 22.0)
    register(story, "write", 2, 23.0, 2.0)
    register(story, "read", 1, 23.1)  # while it is written, either is right
    register(story, "read", 2, 24.0)
    register(story, "write", 3, 26.0, outcome=INFO)  # nobody ever sees it
    register(story, "write", 4, 27.0, outcome=INFO)
    register(story, "read", 2, 28.0)
    register(story, "read", 4, 29.0)  # it came late
    register(story, "read", 1, 20.0, name="leader of 0")
    register(story, "read", 2, 21.0, name="leader of 0")


def steadily(story: SyntheticStory, begin_s: float, end_s: float, every_s: float) -> None:
    """Events to partition 2, each acknowledged after 5 ms."""
    for place in range(round((end_s - begin_s) / every_s)):
        at_s = begin_s + place * every_s
        number = story.call("s", "produce", at_s=at_s)
        story.history.ops[-1] = story.history.ops[-1]._replace(t_end_ns=int((at_s + 0.005) * S))
        story.history.sends.append(SendRow(number, f"s:{number}", 2, "s", None, None, None, OK, None))


def _while_a_node_is_down(story: SyntheticStory) -> None:
    """Node 3 leads partition 2, before and while node 1 is killed: 350 events each."""
    story.history.leaders.append(LeaderRow(9, 2, 1, 3, 0))
    steadily(story, 1.0, 2.0, 1 / 350)
    steadily(story, 3.0, 4.0, 1 / 350)


def _while_zookeeper_fails(story: SyntheticStory) -> None:
    """Its leader is killed; the session of node 1 ends with it, and another one registers the node again."""
    history = story.history
    steadily(story, 11.0, 16.0, 0.1)
    steadily(story, 20.0, 20.5, 0.1)
    history.faults.append(
        FaultRow("2.F14", "F14 kill ZooKeeper's leader", "zookeeper2", 13 * S, 13 * S, 14 * S, 14 * S)
    )
    sessions = {look: {node: 100 + node for node in NODES} for look in range(1, 6)}
    sessions[2].pop(1)
    for look in (3, 4, 5):
        sessions[look][1] = 201
    history.registrations += [
        RegistrationRow(look, (11 + look) * S, node, session, f"token-{node}", f"127.0.0.1:{7000 + node}")
        for look, by_node in sessions.items()
        for node, session in by_node.items()
    ]


def _read_all(story: SyntheticStory) -> None:
    for partition, log in story.logs.items():
        story.read("tail", partition, range(len(log)))
        story.read("dirty", partition, range(len(log)), isolation=UNCOMMITTED)
    story.read("m1", 0, range(4), group="g", generation=1)
    story.commit("m1", 1, 0, 3)
    story.read("m2", 0, range(4, 8), group="g", generation=2)
    story.commit("m2", 2, 0, 7)
    for node, (partition, log) in itertools.product(NODES, story.logs.items()):
        story.read(f"drain-{node}", partition, range(len(log)), f="drain")


# ---------------------------------------------------------------- damages

Damage = Callable[[SyntheticStory], None]


def everywhere(story: SyntheticStory, partition: int, value: str) -> None:
    """The value stands at the end of the log, for everybody."""
    history, offset = story.history, len(story.logs[partition])
    story.logs[partition].append(value)
    last = {
        (read.reader, read.session): read
        for read in history.reads
        if read.partition == partition and read.group is None
    }
    history.reads += [read._replace(msg_id=value, offset=offset, pos=read.pos + 1) for read in last.values()]
    history.replica_dump += [ReplicaDumpRow(node, partition, offset, 2, value, 7) for node in NODES]


def gone(
    story: SyntheticStory, value: str, *, disks: bool = True, keep: Callable[[ReadRow], bool] = lambda read: False
) -> None:
    history = story.history
    history.reads = [read for read in history.reads if read.msg_id != value or keep(read)]
    if disks:
        history.replica_dump = [row for row in history.replica_dump if row.msg_id != value]


def changed(story: SyntheticStory, table: str, which: Callable[..., bool], **values: object) -> None:
    rows = story.history.rows(table)
    found = [place for place, row in enumerate(rows) if which(row)]
    assert found, "nothing to damage"
    for place in found:
        rows[place] = rows[place]._replace(**values)


def lost(story: SyntheticStory) -> None:
    gone(story, "b:0")


def one_node_has_less(story: SyntheticStory) -> None:
    story.history.reads = [
        read for read in story.history.reads if (read.reader, read.partition, read.offset) != ("drain-2", 0, 8)
    ]


def two_values(story: SyntheticStory) -> None:
    changed(story, "reads", lambda read: (read.reader, read.msg_id) == ("tail", "b:0"), msg_id="c:0")


def twice(story: SyntheticStory) -> None:
    everywhere(story, 0, "b:1")


def twice_by_a_transaction(story: SyntheticStory) -> None:
    everywhere(story, 1, "t:7")


def numbers_swapped(story: SyntheticStory) -> None:
    changed(story, "sends", lambda send: send.msg_id == "a:0", seq=1)
    changed(story, "sends", lambda send: send.msg_id == "a:1", seq=0)


def old_epoch(story: SyntheticStory) -> None:
    number = story.call("a", "produce", INFO, at_s=2.6)
    story.history.sends.append(SendRow(number, "a:9", 0, "a", 0, 2, None, INFO, None))
    everywhere(story, 0, "a:9")


def later_before_earlier(story: SyntheticStory) -> None:
    swap = {"b:0": "a:2", "a:2": "b:0"}
    place = {"b:0": 3, "a:2": 2}
    history = story.history
    history.reads = [read._replace(msg_id=swap.get(read.msg_id, read.msg_id)) for read in history.reads]
    history.replica_dump = [row._replace(msg_id=swap.get(row.msg_id, row.msg_id)) for row in history.replica_dump]
    history.sends = [send._replace(offset=place.get(send.msg_id, send.offset)) for send in history.sends]


def invented(story: SyntheticStory) -> None:
    everywhere(story, 0, "nobody:0")


def bits_flipped(story: SyntheticStory) -> None:
    changed(story, "reads", lambda read: (read.reader, read.offset) == ("tail", 1), crc_ok=False)


def aborted_seen(story: SyntheticStory) -> None:
    history = story.history
    offset = story.logs[1].index("t:5")
    for reader in ("tail", "drain-1", "drain-2", "drain-3"):
        rows = [read for read in history.reads if (read.reader, read.partition) == (reader, 1)]
        before = max((read for read in rows if read.offset < offset), key=lambda read: read.offset)
        history.reads = [
            read._replace(pos=read.pos + 1) if read in rows and read.offset > offset else read for read in history.reads
        ]
        history.reads.append(before._replace(msg_id="t:5", offset=offset, pos=before.pos + 1))


def passed_over(story: SyntheticStory) -> None:
    story.history.reads = [read for read in story.history.reads if (read.reader, read.msg_id) != ("tail", "b:0")]


def came_again(story: SyntheticStory) -> None:
    read = next(read for read in story.history.reads if (read.reader, read.msg_id) == ("tail", "a:3"))
    story.history.reads.append(read._replace(pos=read.pos + 1))


def outbid_commits(story: SyntheticStory) -> None:
    story.commit("m1", 1, 0, 8)


def two_owners(story: SyntheticStory) -> None:
    story.read("m3", 0, [5, 6], group="g", generation=2)


def position_back(story: SyntheticStory) -> None:
    story.commit("m2", 2, 0, 5)


def new_owner_late(story: SyntheticStory) -> None:
    story.history.reads = [read for read in story.history.reads if (read.reader, read.offset) != ("m2", 4)]


def half_a_transaction(story: SyntheticStory) -> None:
    gone(story, "t:4", disks=False, keep=lambda read: read.isolation == UNCOMMITTED)


def before_its_commit(story: SyntheticStory) -> None:
    commit = next(op for op in story.history.ops if op.f == "txn-commit")
    story.read("early", 0, [story.logs[0].index("t:0")], at_s=commit.t_inv_ns / S - 0.7)


def two_outputs(story: SyntheticStory) -> None:
    story.history.inputs.append(InputRow("t1", "t:3", 0, *SOURCES[0]))


def from_the_future(story: SyntheticStory) -> None:
    story.read("early", 0, [story.logs[0].index("a:3")], at_s=1.1)


def two_leaders(story: SyntheticStory) -> None:
    story.history.leaders.append(LeaderRow(7, 0, 2, 3, 4 * S))


def stale_end(story: SyntheticStory) -> None:
    story.ask("another", earliest=0, latest=3, stable=3)


def end_falls(story: SyntheticStory) -> None:
    changed(story, "watermarks", lambda mark: mark.stable == 5, latest=12)


def stable_falls(story: SyntheticStory) -> None:
    changed(story, "watermarks", lambda mark: mark.stable == 5, stable=12)


def begin_falls(story: SyntheticStory) -> None:
    changed(story, "watermarks", lambda mark: mark.stable == 5, earliest=4)


def replica_differs(story: SyntheticStory) -> None:
    changed(story, "replica_dump", lambda row: (row.node, row.partition, row.offset) == (3, 0, 4), crc=8)


def partition_dead(story: SyntheticStory) -> None:
    number = story.call("z", "produce", INFO)
    story.history.sends.append(SendRow(number, "z:0", 5, "z", None, None, None, INFO, None))
    story.call("z", "produce", INFO, at_s=90.0)


def never_given(story: SyntheticStory) -> None:
    gone(story, "b:1", disks=False)


def reader_stopped(story: SyntheticStory) -> None:
    story.history.reads = [read for read in story.history.reads if (read.reader, read.msg_id) != ("tail", "a:3")]


def node_died(story: SyntheticStory) -> None:
    story.history.complaints.append(ComplaintRow(2, S, "it ended by itself with status 1"))


def endless(story: SyntheticStory) -> None:
    story.history.ops[0] = story.history.ops[0]._replace(t_end_ns=None)
    story.call("z", "latest", at_s=60.0)


def half_seen(story: SyntheticStory) -> None:
    story.history.reads = [read for read in story.history.reads if (read.reader, read.msg_id) != ("tail", "t:1")]


def not_rewound(story: SyntheticStory) -> None:
    story.history.inputs = [row for row in story.history.inputs if (row.txn, row.source_offset) != ("t3", 2)]


def zookeeper_noticed(story: SyntheticStory) -> None:
    struck = {op.op_id for op in story.history.ops if op.process == "s" and 13 * S < op.t_inv_ns < 16 * S}
    changed(story, "sends", lambda send: send.op_id in struck, outcome=INFO)
    changed(story, "ops", lambda op: op.op_id in struck, type=INFO)


def survivors_slow(story: SyntheticStory) -> None:
    slow = [op.op_id for op in story.history.ops if op.process == "s" and 3 * S <= op.t_inv_ns < 4 * S][::50]
    for number in slow:
        changed(story, "ops", lambda op, number=number: op.op_id == number, t_end_ns=int(4.2 * S))


def read_is_old(story: SyntheticStory) -> None:
    register(story, "read", 2, 30.0)


def write_is_lost(story: SyntheticStory) -> None:
    changed(story, "registers", lambda row: (row.f, row.t_inv_ns) == ("read", 22 * S), value=0)


def read_from_nowhere(story: SyntheticStory) -> None:
    register(story, "read", 9, 30.0)


def refused_and_read(story: SyntheticStory) -> None:
    changed(story, "registers", lambda row: (row.f, row.value) == ("write", 4), type=FAIL)


def read_too_early(story: SyntheticStory) -> None:
    register(story, "read", 4, 26.0)


def who_never_led(story: SyntheticStory) -> None:
    register(story, "read", 3, 30.0, name="leader of 0")


def named_before_it_led(story: SyntheticStory) -> None:
    register(story, "read", 2, 1.0, name="leader of 0")


def other_data_registered(story: SyntheticStory) -> None:
    changed(story, "registrations", lambda row: (row.look, row.node) >= (4, 2) and row.node == 2, token="another")


def replaced_session_back(story: SyntheticStory) -> None:
    changed(story, "registrations", lambda row: (row.look, row.node) == (5, 1), session=101)


def registered_under_two_names(story: SyntheticStory) -> None:
    changed(story, "registrations", lambda row: row.node == 3, token="token-2")


def not_registered_again(story: SyntheticStory) -> None:
    story.history.registrations = [row for row in story.history.registrations if (row.look, row.node) != (5, 3)]


DAMAGES: dict[str, list[Damage]] = {
    "C1": [lost, one_node_has_less],
    "C2": [two_values],
    "C3": [twice, twice_by_a_transaction],
    "C4": [numbers_swapped],
    "C5": [old_epoch],
    "C6": [later_before_earlier],
    "C7": [invented, bits_flipped],
    "C8": [aborted_seen],
    "C9": [passed_over, came_again],
    "C10": [outbid_commits, two_owners],
    "C11": [position_back, new_owner_late],
    "C12": [half_a_transaction, before_its_commit],
    "C13": [two_outputs],
    "C14": [from_the_future],
    "C15": [two_leaders],
    "C16": [stale_end],
    "C17": [end_falls],
    "C18": [replica_differs],
    "C19": [begin_falls],
    "C20": [partition_dead],
    "C21": [never_given, reader_stopped, node_died],
    "C22": [
        read_is_old,
        write_is_lost,
        read_from_nowhere,
        refused_and_read,
        read_too_early,
        who_never_led,
        named_before_it_led,
    ],
    "CALLS": [endless],
    "G1B": [half_seen],
    "LSO": [stable_falls],
    "P99": [survivors_slow],
    "REG": [other_data_registered, replaced_session_back, registered_under_two_names, not_registered_again],
    "REWIND": [not_rewound],
    "ZK": [zookeeper_noticed],
}
"""By the checker that names them, and that alone."""
