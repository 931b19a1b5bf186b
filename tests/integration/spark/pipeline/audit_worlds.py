"""A small history with nothing wrong in it, and what can be done to one: each is found by one check of the audit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from chaos.history.history import History
from chaos.history.tables import TABLES

Row = dict[str, Any]
EVENTS = 12
TABLES_LOOKED_AT = ("ops", "sends", "reads", "transactions")
LATER = 1_000


@dataclass
class AuditWorld:
    """A history of one partition, two numbered producers and a transaction of each kind; nothing is wrong in it."""

    name: str
    number: int
    tables: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in TABLES_LOOKED_AT})

    def __post_init__(self) -> None:
        for place in range(EVENTS):
            self.send(place, f"p{place % 2}", place // 2, offset=10 * place)
        self.send(EVENTS, "t", None, offset=10 * EVENTS, txn="done")
        self.send(EVENTS + 1, "t", None, offset=10 * EVENTS + 10, txn="undone")
        for txn, decision in (("done", "commit"), ("undone", "abort")):
            self.tables["transactions"].append({"txn": f"{self.name}-{txn}", "decision": decision, "outcome": "ok"})
        self.send(EVENTS + 2, "p0", None, outcome="fail")
        for reader, f in (("r", "poll"), ("drain", "drain")):
            op = self.op(f, LATER)
            for pos in range(EVENTS + 1):
                self.read(op, pos, reader, pos)

    def value(self, place: int) -> str:
        return f"{self.name}:{place}"

    def op(self, f: str, t_inv_ns: int) -> int:
        rows = self.tables["ops"]
        number = 1000 * self.number + len(rows)
        rows.append({"op_id": number, "f": f, "t_inv_ns": t_inv_ns, "t_end_ns": t_inv_ns + 1})
        return number

    def send(
        self, place: int, producer: str, seq: int | None, *, offset: int | None = None, txn: str | None = None,
        outcome: str = "ok",
    ) -> Row:  # fmt: skip
        row = {
            "op_id": self.op("produce", 10 * place), "msg_id": self.value(place), "partition": self.number,
            "producer": f"{self.name}-{producer}", "epoch": None if seq is None else 0, "seq": seq,
            "txn": f"{self.name}-{txn}" if txn else None, "outcome": outcome, "offset": offset,
        }  # fmt: skip
        self.tables["sends"].append(row)
        return row

    def read(self, op: int, place: int, reader: str, pos: int, offset: int | None = None) -> Row:
        row = {
            "op_id": op, "msg_id": self.value(place), "crc_ok": True, "partition": self.number,
            "offset": 10 * place if offset is None else offset, "reader": f"{self.name}-{reader}", "session": 0,
            "isolation": "committed", "pos": pos,
        }  # fmt: skip
        self.tables["reads"].append(row)
        return row

    # ---------------------------------------------------------------- of one value

    def sent(self, place: int) -> Row:
        return next(row for row in self.tables["sends"] if row["msg_id"] == self.value(place))

    def reads_of(self, place: int) -> list[Row]:
        return [row for row in self.tables["reads"] if row["msg_id"] == self.value(place)]


def an_event_is_gone(world: AuditWorld) -> str:
    for row in world.reads_of(EVENTS):  # it has no number, and is the last one: nothing else tells
        world.tables["reads"].remove(row)
    return "lost"


def it_is_not_known_whether_it_was_sent(world: AuditWorld) -> str:
    an_event_is_gone(world)
    world.sent(EVENTS)["outcome"] = "info"
    world.sent(EVENTS)["offset"] = None
    return ""


def nobody_has_read_all_of_it(world: AuditWorld) -> str:
    an_event_is_gone(world)
    for row in world.tables["ops"]:
        row["f"] = "poll" if row["f"] == "drain" else row["f"]
    return ""


def an_event_stands_in_two_places(world: AuditWorld) -> str:
    row = world.sent(EVENTS)
    world.tables["sends"].append({**row, "op_id": world.op("produce", 10 * EVENTS), "offset": 10 * EVENTS + 5})
    return "duplicate"


def an_offset_holds_two_values(world: AuditWorld) -> str:
    world.send(50, "other", None, offset=10 * EVENTS)["outcome"] = "info"
    return "two-values"


def an_event_that_nobody_sent(world: AuditWorld) -> str:
    world.tables["sends"].remove(world.sent(EVENTS))
    return "never-sent"


def an_event_in_another_partition(world: AuditWorld) -> str:
    world.sent(EVENTS)["partition"] = 100
    world.sent(EVENTS)["offset"] = None
    return "never-sent"


def a_damaged_event(world: AuditWorld) -> str:
    world.tables["reads"].append({**world.reads_of(EVENTS)[0], "crc_ok": False, "reader": f"{world.name}-late"})
    return "never-sent"


def an_aborted_event_is_read(world: AuditWorld) -> str:
    world.read(world.op("poll", LATER), EVENTS + 1, "late", 0)
    return "rolled-back"


def a_refused_event_is_read(world: AuditWorld) -> str:
    world.read(world.op("poll", LATER), EVENTS + 2, "late", 0, offset=500)
    return "rolled-back"


def two_numbers_are_swapped(world: AuditWorld) -> str:
    one, other = world.sent(4), world.sent(6)
    one["seq"], other["seq"] = other["seq"], one["seq"]
    return "sequence-gap"


def a_number_is_missing(world: AuditWorld) -> str:
    for place in range(4, EVENTS, 2):
        world.sent(place)["seq"] += 1
    return "sequence-gap"


def a_new_epoch_begins_anew(world: AuditWorld) -> str:
    for place in range(4, EVENTS, 2):
        world.sent(place).update(seq=(place - 4) // 2, epoch=1)
    return ""


def a_reader_gets_an_event_again(world: AuditWorld) -> str:
    row = world.reads_of(7)[0]
    world.tables["reads"].append({**row, "reader": f"{world.name}-late", "pos": 0})
    world.tables["reads"].append({**row, "reader": f"{world.name}-late", "pos": 1})
    return "reader-order"


def a_reader_goes_back(world: AuditWorld) -> str:
    for pos, place in enumerate((7, 6)):
        row = world.reads_of(place)[0]
        world.tables["reads"].append({**row, "reader": f"{world.name}-late", "pos": pos})
    return "reader-order"


def a_reader_passes_over_an_event(world: AuditWorld) -> str:
    world.tables["reads"].remove(next(row for row in world.reads_of(7) if row["reader"].endswith("-r")))
    return "reader-order"


def a_later_event_stands_before(world: AuditWorld) -> str:
    op = world.sent(EVENTS)["op_id"]
    for row in world.tables["ops"]:
        if row["op_id"] == op:
            row.update(t_inv_ns=-10, t_end_ns=-9)  # it was answered before any other was sent
    return "time-order"


NAMES = {
    "lost": "C1", "two-values": "C2", "duplicate": "C3", "sequence-gap": "C4", "time-order": "C6", "never-sent": "C7",
    "rolled-back": "C8", "reader-order": "C9",
}  # fmt: skip
"""Of the audit's checks, as chaos runs call them."""


def history_of(world: AuditWorld) -> History:
    """As the chaos suite records it; what the audit does not look at is made up."""
    history = History()
    for name in TABLES_LOOKED_AT:
        kind: Any = TABLES[name]
        made_up = {"process": world.name, "type": "ok", "group": None, "op_id": 0, "t_begin_ns": 0}
        for row in world.tables[name]:
            history.rows(name).append(kind(**{column: row.get(column, made_up.get(column)) for column in kind._fields}))
    return history


MUTATIONS: list[Callable[[AuditWorld], str]] = [
    lambda _: "",
    an_event_is_gone,
    it_is_not_known_whether_it_was_sent,
    nobody_has_read_all_of_it,
    an_event_stands_in_two_places,
    an_offset_holds_two_values,
    an_event_that_nobody_sent,
    an_event_in_another_partition,
    a_damaged_event,
    an_aborted_event_is_read,
    a_refused_event_is_read,
    two_numbers_are_swapped,
    a_number_is_missing,
    a_new_epoch_begins_anew,
    a_reader_gets_an_event_again,
    a_reader_goes_back,
    a_reader_passes_over_an_event,
    a_later_event_stands_before,
]
