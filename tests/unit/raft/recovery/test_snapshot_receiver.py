"""A replica behind the log's first entry comes back by a snapshot, whatever happens on the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.raft import FetchReply, FetchRequest, RaftMessage, RaftOptions, Unknown, erase_group
from cluster.raft.replication.message_validation import RAFT
from cluster.raft.snapshot.bandwidth import BURST_S, LONGEST_REST_MS
from cluster.raft.snapshot.sender import SnapshotSender
from tests.simulation.world.disk import SimBatch
from tests.unit.raft.cluster import GROUP, RaftStage

SMALL = RaftOptions(fetch_bytes=300, trim_wait_s=0.5, fetch_lease_s=2.0, fetch_retry_s=0.1, fetch_timeout_s=0.1)
ENTRIES = 60


def words(count: int, start: int = 0) -> list[str]:
    return [f"event {number:06d} " + "x" * 30 for number in range(start, start + count)]


def trimmed(stage: RaftStage, keep: int) -> None:
    for node in list(stage.multirafts):
        group = stage.group(node)
        group.trim(group.applied_index - keep)
    stage.run(0.05)


def left_behind(keep: int = 20, options: RaftOptions = SMALL) -> RaftStage:
    """Node 3 was away while the others went on and trimmed."""
    stage = RaftStage(options=options)
    stage.elect(1)
    stage.propose(1, "early")
    stage.run(0.05)
    stage.stop(3)
    stage.propose(1, *words(ENTRIES))
    stage.run(1.0)
    trimmed(stage, keep)
    assert stage.group(1).first_index > 10, "a replica that is away holds nothing back for long"
    return stage


def is_whole(stage: RaftStage, node: int = 3) -> bool:
    group, leader = stage.group(node), stage.group(1)
    return group.applied_index == leader.applied_index and stage.machines[node].applied == stage.machines[1].applied


def check_whole(stage: RaftStage) -> None:
    assert is_whole(stage)
    group, leader = stage.group(3), stage.group(1)
    for index in range(max(group.first_index, leader.first_index), leader.last_index + 1):
        assert group.entry(index) == leader.entry(index)
    rows = dict(stage.disks[1].scan(b"o", b"p"))
    assert dict(stage.disks[3].scan(b"o", b"p")) == rows
    assert not list(stage.disks[3].scan(b"s", b"t")), "no note of a snapshot is left"


def test_it_gets_state_rows_and_entries_while_the_group_goes_on() -> None:
    stage = left_behind()
    stage.start(3)
    seen: list[str] = []
    for number in range(40):
        stage.propose(1, f"meanwhile {number}")
        stage.run(0.01)
        progress = stage.group(3).status()["catching_up"]
        if progress is not None:
            seen.append(progress["phase"])
            assert progress["received_bytes"] >= 0
    stage.until(lambda: is_whole(stage))
    check_whole(stage)
    assert set(seen) >= {"entries", "rows", "state"}
    assert max(len(request.SerializeToString()) for _, _, request in stage.fetches) < 200
    stage.stop(2)
    outcomes = stage.propose(1, "with the help of node 3")
    stage.until(lambda: bool(outcomes))


def test_a_wiped_member_comes_back_the_same_way_and_votes() -> None:
    stage = left_behind()
    stage.wipe(3)
    stage.until(lambda: is_whole(stage) and stage.group(3).has_vote(3), seconds=20.0)
    check_whole(stage)


def test_pieces_are_bounded() -> None:
    stage = left_behind()
    sizes: list[int] = []

    def measure(reply: FetchReply) -> FetchReply:
        sizes.append(len(reply.body))
        return reply

    stage.on_piece = measure
    stage.start(3)
    stage.until(lambda: is_whole(stage), seconds=20.0)
    assert len(sizes) > 10
    assert max(sizes) < 2 * SMALL.fetch_bytes


@pytest.mark.parametrize("every", [1, 2, 7])
def test_a_damaged_piece_is_refused_and_asked_for_again(every: int) -> None:
    stage = left_behind()
    pieces = 0

    def spoil(reply: FetchReply) -> FetchReply:
        nonlocal pieces
        pieces += 1
        if pieces % (every + 1) == 0 and reply.body:
            spoiled = bytearray(reply.body)
            spoiled[len(spoiled) // 2] ^= 0x10
            reply.body = bytes(spoiled)
        return reply

    stage.on_piece = spoil
    stage.start(3)
    stage.until(lambda: is_whole(stage), seconds=60.0)
    check_whole(stage)
    assert pieces > 5


def test_lost_pieces_are_asked_for_again() -> None:
    stage = left_behind()
    count = 0

    def lose(reply: FetchReply) -> FetchReply | None:
        nonlocal count
        count += 1
        return reply if count % 3 else None

    stage.on_piece = lose
    stage.start(3)
    stage.until(lambda: is_whole(stage), seconds=30.0)
    check_whole(stage)


@pytest.mark.parametrize("power_loss", [False, True])
def test_it_goes_on_where_it_was_after_a_crash(power_loss: bool) -> None:
    """Whenever it crashes it has its old log or the new one, and what was staged is not sent again."""
    stage = left_behind(keep=40)
    stage.start(3)
    crashes = 0
    while not is_whole(stage):
        stage.run(0.012)
        status = stage.group(3).status()
        if status["catching_up"] is not None and crashes < 30:
            stage.stop(3, power_loss=power_loss)
            stage.start(3)
            crashes += 1
        assert stage.clock.now < 1100.0, status
    check_whole(stage)
    asked_from = [
        r.entries_from for _, _, r in stage.fetches if r.snapshot and r.WhichOneof("wanted") == "entries_from"
    ]
    assert crashes > 3
    assert sorted(asked_from) == asked_from, "entries that were staged were asked for again"


def test_another_leader_goes_on_with_the_entries() -> None:
    stage = left_behind(keep=40)
    stage.start(3)
    stage.until(lambda: (stage.group(3).status()["catching_up"] or {}).get("next", 0) > 40)
    staged = stage.group(3).status()["catching_up"]["next"]
    before = len(stage.fetches)
    stage.elect(2)
    stage.until(lambda: stage.group(3).status()["catching_up"] is None)
    asked = [
        r.entries_from
        for _, peer, r in stage.fetches[before:]
        if peer == 2 and r.WhichOneof("wanted") == "entries_from"
    ]
    assert min(asked) >= staged
    stage.run(0.1)
    check_whole(stage)


def test_another_leader_whose_snapshot_ends_before_the_staged_entries() -> None:
    """Node 1 trims an entry that node 2 does not know to be committed, and leads on until node 3 has staged from there
    on. What node 2 gives then ends before that."""
    stage = left_behind(keep=20)
    stage.start(3)
    stage.until(lambda: (stage.group(3).status()["catching_up"] or {}).get("phase") == "entries")
    stage.stop(3)
    stage.run(SMALL.fetch_lease_s + 0.1)
    committed = stage.group(2).commit_index
    stage.propose(1, "committed, as node 1 knows")
    stage.until(lambda: stage.group(1).applied_index == committed + 1)
    stage.hold(1, 2)
    assert stage.group(2).commit_index == committed
    stage.group(1).trim(committed + 1)
    stage.start(3)
    stage.until(lambda: (stage.group(3).status()["catching_up"] or {}).get("first") == committed + 2)
    stage.stop(1)
    stage.held[1, 2].clear()
    stage.release_link(1, 2)
    stage.elect(2)
    assert stage.group(2).applied_index == committed
    stage.until(lambda: stage.group(3).status()["catching_up"] is None, seconds=20.0)
    stage.until(lambda: stage.group(3).applied_index > committed + 1)
    stage.until(lambda: stage.machines[3].applied == stage.machines[2].applied)


def test_while_it_fetches_nothing_that_it_needs_is_trimmed() -> None:
    stage = left_behind(keep=40)
    stage.start(3)
    stage.until(lambda: (stage.group(3).status()["catching_up"] or {}).get("phase") == "entries")
    first = stage.group(1).first_index
    stage.propose(1, *words(100, start=1000))
    stage.run(0.03)
    assert stage.group(3).status()["catching_up"] is not None
    for node in (1, 2):
        stage.group(node).trim(stage.group(node).applied_index)
    stage.run(0.01)
    assert stage.group(1).first_index <= first + 40
    stage.until(lambda: is_whole(stage), seconds=20.0)
    stage.group(1).trim(stage.group(1).applied_index - 1)
    stage.run(0.1)
    assert stage.group(1).first_index > first + 100, "then it goes"


def test_what_is_staged_stays_while_the_leader_gives_signs_of_life_and_takes_more() -> None:
    """H16 of the review: only an append that joins the log takes the place of a fetch."""
    stage = left_behind(keep=40, options=replace(SMALL, fetch_bytes_per_s=4000))
    stage.start(3)
    stage.until(lambda: (stage.group(3).status()["catching_up"] or {}).get("phase") == "entries")
    staged = [0]
    while (progress := stage.group(3).status()["catching_up"]) is not None:
        staged.append(progress["next"])
        if len(staged) % 10 == 0:
            stage.propose(1, "another")
        stage.run(0.02)
        assert staged == sorted(staged)
        assert len(staged) < 1000, "it ends"
    assert len(staged) * 0.02 > 5 * SMALL.heartbeat_s, "it took many signs of life"
    assert len([request for node, _, request in stage.fetches if node == 3 and not request.snapshot]) == 1
    stage.until(lambda: is_whole(stage), seconds=20.0)


def test_on_a_full_disk_a_fetch_holds_nothing_back_and_begins_anew() -> None:
    stage = left_behind(keep=40)
    stage.start(3)
    stage.until(lambda: (stage.group(3).status()["catching_up"] or {}).get("phase") == "entries")
    stage.propose(1, *words(100, start=1000))
    stage.run(0.03)
    stage.multirafts[1].is_disk_full = True
    trimmed(stage, 2)
    assert stage.group(1).first_index >= stage.group(1).applied_index - 2
    stage.until(lambda: is_whole(stage), seconds=20.0)
    check_whole(stage)


def test_who_stops_asking_holds_nothing_back() -> None:
    stage = left_behind(keep=40)
    stage.start(3)
    stage.until(lambda: (stage.group(3).status()["catching_up"] or {}).get("phase") == "entries")
    stage.stop(3)
    stage.run(SMALL.fetch_lease_s + 1.0)
    trimmed(stage, 2)
    assert stage.group(1).first_index >= stage.group(1).applied_index - 2
    stage.start(3)
    stage.until(lambda: is_whole(stage), seconds=20.0)
    check_whole(stage)


def test_it_takes_no_more_than_its_share_of_bytes() -> None:
    slow = RaftOptions(fetch_bytes=300, fetch_bytes_per_s=4000, trim_wait_s=0.5)
    stage = left_behind(options=slow)
    received = 0

    def count(reply: FetchReply) -> FetchReply:
        nonlocal received
        received += len(reply.body)
        return reply

    stage.on_piece = count
    stage.start(3)
    took_s = stage.until(lambda: is_whole(stage), seconds=60.0)
    assert received / took_s < 1.2 * slow.fetch_bytes_per_s


def test_it_gives_no_more_than_its_share_of_bytes() -> None:
    stage = left_behind()
    stage.version = 15
    budget, given, put_off = stage.multirafts[1].copies.out, 0, 0
    budget.most = 4000

    def count(reply: FetchReply) -> FetchReply:
        nonlocal given, put_off
        given += len(reply.body)
        put_off += reply.rest_ms > 0
        return reply

    stage.on_piece = count
    stage.start(3)
    took_s = stage.until(lambda: is_whole(stage), seconds=60.0)
    assert given / took_s < 1.2 * budget.most
    assert put_off
    check_whole(stage)


def test_a_group_that_is_refused_lets_others_fetch() -> None:
    """A replica that is no member any more is refused for ever, and the metadata that say so may have to be fetched."""
    stage = left_behind(options=replace(SMALL, fetch_groups=1))
    refused = 0

    def refuse(reply: FetchReply) -> FetchReply:
        nonlocal refused
        refused += 1
        asked = FetchRequest(group=reply.group, version=reply.version, number=reply.number)
        return SnapshotSender.refuse(asked, "this node does not lead the group")

    stage.on_piece = refuse
    stage.start(3)
    stage.until(lambda: refused > 0)
    slots, other = stage.multirafts[3].copies.into, GROUP + 1
    stage.until(lambda: slots.enter(other))
    assert not slots.enter(other + 1), "there is one"
    slots.leave(other)
    stage.on_piece = lambda reply: reply
    stage.until(lambda: is_whole(stage))


@pytest.mark.parametrize("bytes_ahead", [1, 10_000, 1 << 40])
def test_a_rest_is_one_that_the_receiver_takes(bytes_ahead: int) -> None:
    """A single large entry at a low pace is more than the longest rest."""
    stage = left_behind()
    stage.version = 15
    leader = stage.multirafts[1]
    leader.copies.limit(1000)
    leader.copies.out.charge(int(1000 * BURST_S) + bytes_ahead, stage.clock.now)
    reply = leader.serve_fetch(3, FetchRequest(group=GROUP, version=1, number=1, max_bytes=1))
    assert 0 < reply.rest_ms <= LONGEST_REST_MS
    assert RAFT.fault(reply) is None


def test_who_is_put_off_for_ever_asks_again() -> None:
    stage = left_behind()
    stage.on_piece = lambda reply: FetchReply(
        group=reply.group, version=reply.version, number=reply.number, rest_ms=1 << 63
    )
    stage.start(3)
    stage.until(lambda: bool(stage.fetches))
    stage.run(0.1)
    stage.on_piece = lambda reply: reply
    stage.until(lambda: is_whole(stage), seconds=LONGEST_REST_MS / 1000 + 10.0)


def test_a_node_of_the_version_before_is_never_put_off() -> None:
    stage = left_behind()
    stage.version = 14
    stage.multirafts[1].copies.out.most = 1
    stage.multirafts[1].copies.out.charge(1000, stage.clock.now)
    rests: list[int] = []

    def note(reply: FetchReply) -> FetchReply:
        rests.append(reply.rest_ms)
        return reply

    stage.on_piece = note
    stage.start(3)
    stage.until(lambda: is_whole(stage), seconds=20.0)
    assert set(rests) == {0}


def test_what_was_given_in_the_version_before_holds_up_nobody_later() -> None:
    stage = left_behind()
    stage.version = 14
    budget = stage.multirafts[1].copies.out
    budget.most = 1
    stage.start(3)
    stage.until(lambda: is_whole(stage), seconds=20.0)
    assert budget.opens_at(stage.clock.now, "copy") is None


def test_a_log_that_conflicts_below_the_base_is_replaced() -> None:
    """Node 1 led alone and kept what nobody else has; meanwhile the others trimmed far beyond it."""
    stage = RaftStage(options=SMALL)
    stage.elect(1)
    stage.run(0.05)
    stage.isolate(1)
    outcomes = stage.propose(1, *words(80))
    stage.run(0.01)
    stage.elect(2)
    stage.propose(2, *words(50, start=500))
    stage.run(1.0)
    for node in (2, 3):
        stage.group(node).trim(stage.group(node).applied_index - 5)
    stage.run(0.05)
    assert stage.group(2).first_index > 10
    stage.heal()
    stage.until(lambda: stage.group(1).applied_index == stage.group(2).applied_index, seconds=20.0)
    assert stage.machines[1].applied == stage.machines[2].applied
    stage.until(lambda: len(outcomes) == 80)
    assert {type(outcome) for outcome in outcomes} == {Unknown}, "what a snapshot jumped over is not known"


def test_what_a_log_holds_beyond_the_snapshot_is_not_forgotten() -> None:
    """Node 3 has acknowledged more than the leader has committed, and does not know that any of it is committed. A
    leader that takes it for one that is behind must not make it forget what may be counted on."""
    stage = RaftStage(options=replace(SMALL, quorum_check_s=60.0))
    stage.elect(1)
    stage.run(0.05)
    known = stage.group(3).commit_index
    stage.hold(1, 3)
    stage.hold(3, 1)
    stage.propose(1, *words(ENTRIES))
    stage.run(1.0)
    for node in (1, 2):
        stage.group(node).trim(stage.group(node).applied_index - 20)
    stage.run(0.05)
    stage.stop(2)
    outcomes = stage.propose(1, *words(10, start=500))
    stage.run(0.05)
    leader, member = stage.group(1), stage.group(3)
    assert known < leader.first_index - 1 < leader.applied_index < leader.last_index
    for message in stage.held[1, 3]:
        if message.append.entry_terms:
            message.append.commit_index = known
            stage.inject(1, 3, message)
    stage.run(0.01)
    assert (member.last_index, member.commit_index) == (leader.last_index, known)
    behind = RaftMessage(group=GROUP, version=1, term=leader.term)
    behind.append.sequence = 1
    behind.append.retained_from = leader.first_index
    stage.inject(1, 3, behind)
    stage.until(lambda: member.status()["catching_up"] is not None)
    stage.until(lambda: member.status()["catching_up"] is None)
    assert member.last_index == leader.last_index
    stage.until(lambda: member.applied_index == leader.applied_index)
    stage.held[1, 3].clear()
    stage.release_link(3, 1)
    stage.until(lambda: len(outcomes) == 10)
    stage.stop(1)
    stage.start(2)
    stage.elect(3)
    stage.until(lambda: stage.group(3).ready)
    assert stage.machines[3].applied == [word.encode() for word in words(ENTRIES) + words(10, start=500)]


def test_a_snapshot_of_a_term_that_was_not_heard_of_yet() -> None:
    """Messages of the leader do not arrive, pieces of its snapshot do: they may be of a later term."""
    stage = left_behind(keep=40)
    stage.start(3)
    stage.until(lambda: (stage.group(3).status()["catching_up"] or {}).get("phase") == "entries")
    stage.hold(1, 3)
    stage.hold(2, 3)
    old_term = stage.group(3).term
    stage.elect(2)
    stage.elect(1)
    stage.until(lambda: stage.group(3).status()["catching_up"] is None, seconds=20.0)
    assert stage.group(3).term == stage.group(1).term > old_term
    stage.release_link(1, 3)
    stage.release_link(2, 3)
    stage.until(lambda: is_whole(stage))
    stage.stop(3)
    stage.start(3)
    stage.until(lambda: is_whole(stage))


def test_the_snapshot_takes_the_place_of_the_log_in_one_batch() -> None:
    stage = left_behind()
    stage.start(3)
    stage.until(lambda: (stage.group(3).status()["catching_up"] or {}).get("phase") == "state")
    before = dict(stage.disks[3].scan(b"", b"\xff" * 20))
    writes: list[SimBatch] = []
    write = stage.disks[3].write

    def watched(batch: SimBatch) -> None:
        writes.append(batch)
        write(batch)

    stage.disks[3].write = watched  # type: ignore[method-assign]
    stage.until(lambda: stage.group(3).status()["catching_up"] is None)
    hard = b"h" + GROUP.to_bytes(8)
    changing = [batch for batch in writes if any(key == hard for _, key, _ in batch.operations)]
    assert before[hard] != stage.disks[3].get(hard)
    kinds = {key[:1] for _, key, _ in changing[0].operations}
    assert kinds >= {b"h", b"c", b"t", b"s"}, "log, checkpoint and hard state change together"


def test_erasing_a_group_leaves_nothing_staged() -> None:
    stage = left_behind(keep=40)
    stage.start(3)
    stage.until(lambda: (stage.group(3).status()["catching_up"] or {}).get("next", 0) > 40)
    stage.stop(3)
    disk = stage.disks[3]
    batch = disk.batch()
    erase_group(GROUP, batch)
    disk.write(batch)
    assert [key for key, _ in disk.scan(b"", b"\xff" * 20) if key[:1] != b"o"] == []


def test_strangers_and_followers_give_no_snapshot() -> None:
    stage = left_behind()
    stage.start(3)
    stage.until(lambda: bool(stage.fetches))
    _, _, request = stage.fetches[0]
    for asked, asker in ((2, 3), (1, 9)):
        reply = stage.multirafts[asked].serve_fetch(asker, request)
        assert b"lead" in reply.body or b"member" in reply.body


def test_a_piece_that_the_leader_cannot_give_is_refused_and_costs_the_group_nothing() -> None:
    """With node 2 away, and node 3 to be brought up to date, there is no majority without the leader."""
    stage = left_behind()
    log_store = stage.group(1).log_store
    refusals: list[bytes] = []

    def heard(reply: FetchReply) -> FetchReply:
        refusals.extend([reply.body] if b"a defect" in reply.body else [])
        return reply

    def fails(*_: int) -> None:
        raise TypeError("a defect")

    stage.on_piece = heard
    log_store.take = fails  # type: ignore[method-assign, assignment]
    stage.start(3)
    stage.until(lambda: len(refusals) > 2, seconds=20.0)
    del log_store.take
    assert stage.group(1).quarantined is None
    stage.until(lambda: is_whole(stage), seconds=20.0)
    check_whole(stage)
