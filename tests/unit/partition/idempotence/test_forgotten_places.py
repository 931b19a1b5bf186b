"""What comes again when there was no room to remember its digest: a number that is stored is never stored twice, nor
refused."""

from __future__ import annotations

import pytest

from node.listener.incoming.idempotent_producers.idempotent_link import CREDIT_LIMIT
from node.partition.idempotence import producer_state as rules
from node.partition.idempotence.producer_state import FORGOTTEN, Known, ProducerTable, StoredAt
from node.partition.partition_commands import OpenProducer
from node.partition.raft_entry import EntryHead, read_entry
from node.partition.state_machine import AppendAccepted, AppendRejected
from tests.batches import entry_of
from tests.unit.partition.idempotence.producing import ProducedLog, code

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def test_a_number_that_is_stored_is_known_though_its_digest_made_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is sent again, and with what behind it; nothing of it is stored twice, and no gap is taken for it."""
    monkeypatch.setattr(rules, "REMEMBERED_EVENTS", 24)
    monkeypatch.setattr(rules, "LEAST_EVENTS", 4)
    monkeypatch.setattr(rules, "MEMORY_BYTES", 2 * 8 * (20 + 4))
    log = ProducedLog()
    log.opened(1, last=99)
    for number in range(100, 120):
        log.send(1, 0, number, LETTERS[number - 100])
    log.opened(2)
    for number in range(1, 13):
        log.send(2, 0, number, "z")
    log.restart()
    assert log.producer(1).remembered == 5
    where = log.machine.state.next_offset

    whole = log.send(1, 0, 100, LETTERS[:20])
    assert isinstance(whole, AppendAccepted)
    assert whole.duplicate
    assert whole.rows(0, 20) == ((15, FORGOTTEN), (5, 15))
    assert [whole.place_of(place)[0] for place in (0, 14, 15, 19)] == [FORGOTTEN, FORGOTTEN, 15, 19]
    front = log.send(1, 0, 103, LETTERS[3:6])
    assert isinstance(front, AppendAccepted)
    assert (front.rows(0, 3), front.rows(1, 2)) == (((3, FORGOTTEN),), ((2, FORGOTTEN),))
    assert log.machine.state.next_offset == where

    changed = log.send(1, 0, 113, LETTERS[13:16] + "X" + LETTERS[17:])
    assert isinstance(changed, AppendRejected)
    assert changed.code == "out-of-order"
    assert changed.rows(0, 3) == ((2, FORGOTTEN), (1, 15)), "which stand, in front of the one that is not the same"
    assert code(log.send(1, 0, 99, "y")) == "out-of-order", "this epoch began behind it"
    assert code(log.send(1, 0, 121, "y")) == "out-of-order", "a gap"
    assert log.machine.state.next_offset == where

    more = log.send(1, 0, 110, LETTERS[10:20] + "UV")
    assert isinstance(more, AppendAccepted)
    assert more.rows(0, 12) == ((5, FORGOTTEN), (5, 15), (2, where))
    for number in range(122, 132):
        log.send(1, 0, number, "w")
    assert code(log.send(1, 0, 107, LETTERS[7])) == "out-of-order", "nobody may have it under way any more"
    assert isinstance(log.send(1, 0, 108, LETTERS[8]), AppendAccepted)
    log.opened(1, 1)
    assert isinstance(log.send(1, 1, 131, "w"), AppendAccepted), "a new epoch may begin with any number"
    assert code(log.send(1, 1, 130, "w")) == "out-of-order", "what the one before it stored is not its own"


def test_a_row_never_goes_on_from_a_place_that_is_forgotten() -> None:
    assert rules.rows_of([(3, FORGOTTEN), (2, 2), (1, 4)]) == ((3, FORGOTTEN), (3, 2))


def test_all_that_busy_producers_have_under_way_is_known_after_a_failover() -> None:
    """250 of them, each with twice a link's credit: what a connection that breaks between the answers and the new
    credit leaves in doubt."""
    table, producers, entry = ProducerTable(), 250, 1024
    window = 2 * CREDIT_LIMIT
    options = {"producer_id": 0, "producer_epoch": 0}
    entries = [
        entry_of([b""] * entry, base_sequence=first, digests=first.to_bytes(4) * entry, **options)
        for first in range(0, window, entry)
    ]
    batches = [batch for one in entries for batch in read_entry(one)]

    def of(producer: int, batch: EntryHead) -> EntryHead:
        return batch._replace(head=batch.head._replace(producer_id=producer))

    index = 0
    for producer in range(producers):
        table.open(OpenProducer(producer, 0, None, 0), index, 0)
    for batch in batches:
        for producer in range(producers):
            mine = of(producer, batch)
            assert table.judge(mine) == rules.ALL_NEW
            index += 1
            table.accept(mine, StoredAt(entry, index * entry, 0), 0)
    assert table.memory_bytes <= rules.MEMORY_BYTES
    assert max(row.remembered for row in table.rows()) < window, "there is no room for all of it"
    for batch in batches:
        for producer in range(producers):
            verdict = table.judge(of(producer, batch))
            assert isinstance(verdict, Known), verdict
            assert verdict.count == entry
