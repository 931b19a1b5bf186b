"""The wire: what is encoded by hand is what protobuf would have made of it, and the generated code is that of
the .proto."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.raft import RaftMessage
from cluster.raft.replication import message_encoding
from cluster.raft.replication.message_encoding import BESIDE_FROM_BYTES, MAX_ENTRIES_BESIDE, Stamp
from cluster.rpc.raft_transport.frame_writer import FRAME_MESSAGES
from cluster.rpc.rpc_pb2 import Frame

MESSAGES_TAG = bytes((FRAME_MESSAGES << 3 | 2,))
ROOT = Path(__file__).parents[4]
U64 = st.integers(0, 2**64 - 1)


@given(
    group=U64, version=st.integers(0, 2**32 - 1), term=U64, sequence=U64, commit=U64, previous=st.tuples(U64, U64),
    entries=st.lists(st.tuples(st.binary(min_size=1, max_size=300), U64), max_size=5),
)  # fmt: skip
def test_an_append_encoded_by_hand_reads_as_the_same_message(
    group: int,
    version: int,
    term: int,
    sequence: int,
    commit: int,
    previous: tuple[int, int],
    entries: list[tuple[bytes, int]],
) -> None:
    bodies, terms = [body for body, _ in entries], [entry_term for _, entry_term in entries]
    encoded = Stamp(group, version).append_entries(term, sequence, commit, previous, bodies, terms)
    wanted = RaftMessage(
        group=group,
        version=version,
        term=term,
        append={
            "sequence": sequence,
            "commit_index": commit,
            "has_previous": True,
            "previous_index": previous[0],
            "previous_term": previous[1],
            "entries": bodies,
            "entry_terms": terms,
        },
    )
    assert RaftMessage.FromString(encoded.SerializeToString()) == wanted
    assert encoded.SerializeToString() is encoded.SerializeToString(), "encoded once for all who get it"
    other = Stamp(group, version).append_entries(term, sequence, commit, previous, bodies, terms)
    for one in (encoded, other):  # whatever is asked first
        element = one.element(MESSAGES_TAG)
        frame = Frame.FromString(element + element)
        assert list(frame.messages) == [wanted, wanted]
        assert one.element(MESSAGES_TAG) is element, "joined once for all followers"
        assert one.SerializeToString() == encoded.SerializeToString()


def test_a_megabyte_passes() -> None:
    body = b"\0" + bytes(range(256)) * 4096
    read = RaftMessage.FromString(Stamp(1, 1).append_entries(1, 1, 1, (1, 0), [body], [1]).SerializeToString())
    assert read.append.entries[0] == body


def test_entries_that_are_large_in_the_mean_are_not_in_the_element() -> None:
    size = BESIDE_FROM_BYTES
    for sizes, beside in (([size], True), ([size - 1], False), ([2 * size, 1], True), ([2 * size, 1, 1], False)):
        entries = [bytes(one) for one in sizes]
        append = Stamp(3, 1).append_entries(2, 1, 1, (1, 0), entries, [2] * len(entries))
        (read,) = Frame.FromString(append.element(MESSAGES_TAG)).messages
        assert (read.append.entries_beside, len(read.append.entries)) == (beside, 0 if beside else len(entries))
        assert (read.group, len(read.append.entry_terms)) == (3, len(entries))
        assert append.beside == (tuple(entries) if beside else ())
        whole = RaftMessage.FromString(append.SerializeToString())
        assert (list(whole.append.entries), whole.append.entries_beside) == (entries, False)


def test_more_entries_than_a_receiver_takes_beside_a_frame_are_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_encoding, "BESIDE_FROM_BYTES", 1)
    for count in (MAX_ENTRIES_BESIDE, MAX_ENTRIES_BESIDE + 1):
        append = Stamp(3, 1).append_entries(2, 1, 1, (1, 0), [b"entry"] * count, [2] * count)
        (read,) = Frame.FromString(append.element(MESSAGES_TAG)).messages
        assert read.append.entries_beside == (count == MAX_ENTRIES_BESIDE) == bool(append.beside)


def test_the_generated_code_is_that_of_the_proto_file(tmp_path: Path) -> None:
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            "-Iproto",
            f"--python_out={tmp_path}",
            f"--pyi_out={tmp_path}",
            "proto/cluster/raft/raft.proto",
        ],
        cwd=ROOT,
        check=True,
    )
    for name in ("raft_pb2.py", "raft_pb2.pyi"):
        made = (tmp_path / "cluster/raft" / name).read_text()
        assert made == (ROOT / "cluster/raft" / name).read_text(), f"{name} is stale: compile proto/cluster/raft again"
