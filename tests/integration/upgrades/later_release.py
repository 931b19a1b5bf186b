"""Releases beside this one, for tests of upgrades: a later one, which knows one version more, and an earlier one.

The version brings features that exist in this copy only. The leader of a partition puts notes into its log, by a new
command, and marks each batch that it stores; each log that is made or changed is noted in the metadata, by another new
command. Checkpoints and hard states have new layouts, with what the notes left behind.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from cluster.versions import NEWEST, OLDEST

ROOT = Path(__file__).resolve().parents[3]
LATER = NEWEST + 1

Change = tuple[str, str]

LATER_LAYOUTS = {"hard state": 4, "metadata": 8, "partition": 8, "coordinator": 2}

CHANGES: dict[str, list[Change]] = {
    "cluster/versions.py": [(f"\nNEWEST = {NEWEST}\n", f"\nNEWEST = {LATER}\n")],
    "cluster/features.py": [("FEATURES: dict[str, int] = {", f'FEATURES: dict[str, int] = {{"notes": {LATER}, ')],
    "cluster/raft/log/key_layout.py": [("{14: LAYOUT}", f"{{14: LAYOUT, {LATER}: 4}}")],
    "node/transaction_coordinator/state.py": [("{14: LAYOUT}", f"{{14: LAYOUT, {LATER}: 2}}")],
    # The metadata: a command, and a field of the checkpoint.
    "proto/cluster/metadata/metadata.proto": [
        ("message ReadmitNode {", "message PutNote {\n  string text = 1;\n}\n\nmessage ReadmitNode {"),
        ("activate_version = 11;\n", "activate_version = 11;\n    PutNote put_note = 1000;\n"),
        ("uint32 active_version = 11; // 0", "repeated string notes = 1000;\n  uint32 active_version = 11; // 0"),
    ],
    "cluster/metadata/state.py": [
        ("    cluster_id: int = 0\n", "    notes: list[str] = field(default_factory=list)\n    cluster_id: int = 0\n"),
        (
            "def _readmit_node(",
            "def _put_note(state: MetadataState, command: pb.PutNote) -> CommandResult:\n"
            "    state.notes.append(command.text)\n    return Ok()\n\n\ndef _readmit_node(",
        ),
        ('    "readmit_node": _readmit_node,\n', '    "readmit_node": _readmit_node,\n    "put_note": _put_note,\n'),
    ],
    "cluster/metadata/codec.py": [
        ("{14: 6, 15: CHECKPOINT_VERSION}", f"{{14: 6, 15: CHECKPOINT_VERSION, {LATER}: 8}}"),
        (
            "        cluster_id=state.cluster_id,\n",
            "        cluster_id=state.cluster_id,\n"
            "        notes=state.notes if CHECKPOINTS.at(version) == 7 else (),\n",
        ),
        (
            "        cluster_id=checkpoint.cluster_id,\n",
            "        cluster_id=checkpoint.cluster_id,\n        notes=list(checkpoint.notes),\n",
        ),
    ],
    "node/admin/administration.py": [
        (
            "        result = await self._proposer.execute(command)\n        if isinstance(result, Refusal):\n"
            "            raise AdminRequestFailed(result.code, result.message)\n        name = _name(args)\n",
            '        if self._features.active("notes"):\n'
            "            from cluster.metadata import metadata_pb2 as pb\n\n"
            '            await self._proposer.execute(pb.Command(put_note=pb.PutNote(text=str(args.get("name")))))\n'
            "        result = await self._proposer.execute(command)\n        if isinstance(result, Refusal):\n"
            "            raise AdminRequestFailed(result.code, result.message)\n        name = _name(args)\n",
        )
    ],
    # A partition: a command, and a field of the checkpoint.
    "node/partition/partition_commands.py": [
        (
            "Command = Append |",
            "@dataclass(frozen=True, slots=True)\nclass Note:\n    pass\n\n\nCommand = Note | Append |",
        ),
        ("    TAG_TRIM: _decode_trim,\n", "    TAG_TRIM: _decode_trim,\n    7: lambda entry: Note(),\n"),
    ],
    "node/partition/state_machine.py": [
        ("{14: LAYOUT}", f"{{14: LAYOUT, {LATER}: 8}}"),
        ("import Append, Command, OpenProducer,", "import Append, Command, Note, OpenProducer,"),
        ("            Append: self._append,\n", "            Append: self._append,\n            Note: self._note,\n"),
        (
            "    def _append(self, index: int, command: Append)",
            "    def _note(self, index: int, command: Note) -> Applied:\n        self.state.notes += 1\n"
            "        return Trimmed(0), ()\n\n    def _append(self, index: int, command: Append)",
        ),
        (
            "default_factory=TransactionsRow)  # filled for a checkpoint only\n",
            "default_factory=TransactionsRow)  # filled for a checkpoint only\n    notes: int = 0\n",
        ),
        (
            "        return msgspec.msgpack.encode(full)\n",
            "        fields = [getattr(full, name) for name in full.__struct_fields__]\n"
            "        return msgspec.msgpack.encode(fields if full.layout == 8 else fields[:-1])\n",
        ),
    ],
    "node/partition/partition_replica.py": [
        (
            "        counts_time = self._machine.counts_time\n",
            '        if self.features.active("notes") and self.is_leader and self._machine.state.notes < 20:\n'
            "            import contextlib\n\n"
            "            from cluster.raft import NotLeader\n\n"
            "            with contextlib.suppress(NotLeader):  # as when it is about to hand the group over\n"
            "                self.group.propose(bytes((0, 7)), lambda outcome: None)\n"
            "        counts_time = self._machine.counts_time\n",
        ),
        (
            "        self._readers: set[LocalReader] = set()\n",
            "        self._appender.features = self.features\n        self._readers: set[LocalReader] = set()\n",
        ),
    ],
    # A field of each batch, which readers are not shown.
    "holdfast/records/record_batch.py": [
        ("\nVERSION = 1\n", "\nVERSION = 2\n"),  # the same layout: how the two agree is what is tested
        ("            VERSION, 0, attributes,", "            1, 0, attributes,"),
        ("    if version != VERSION:\n", "    if version not in (1, 2):\n"),
        ("_KNOWN = 0b111 |", "NOTED = 1 << 13\n_KNOWN = NOTED | 0b111 |"),
        (
            "first=first, events=events))\n\n    def part",
            "first=first, events=events,\n            attributes=self.head.attributes & ~NOTED))\n\n"
            "    def noted(self) -> RecordBatch:\n"
            "        return self._with(self.head._replace(attributes=self.head.attributes | NOTED))\n\n    def part",
        ),
    ],
    "node/partition/appender.py": [
        (
            "            call.batch = batch.stamped(now_ms)\n",
            "            call.batch = batch.stamped(now_ms)\n"
            '            if self.features.active("notes"):\n                call.batch = call.batch.noted()\n',
        ),
    ],
}


def later_release(directory: Path, *, oldest: int = OLDEST) -> Path:
    """Make the tree; returns it, for PYTHONPATH. `oldest`: of the versions that it knows."""
    for package in ("cluster", "node", "holdfast", "proto"):
        shutil.copytree(ROOT / package, directory / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, changes in CHANGES.items():
        path = directory / name
        text = path.read_text(encoding="utf-8")
        for old, new in changes:
            assert text.count(old) == 1, f"{name} has {old!r} {text.count(old)} times: the later release has to change"
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")
    versions = directory / "cluster/versions.py"
    versions.write_text(versions.read_text().replace(f"\nOLDEST = {OLDEST}\n", f"\nOLDEST = {oldest}\n"))
    proto = "cluster/metadata/metadata.proto"
    made = [sys.executable, "-m", "grpc_tools.protoc", "-Iproto", "--python_out=.", proto]
    subprocess.run(made, cwd=directory, check=True)
    return directory


def earlier_release(directory: Path) -> Path:
    """Make the tree of a release that knows only the oldest version; returns it, for PYTHONPATH."""
    for package in ("cluster", "node", "holdfast"):
        shutil.copytree(ROOT / package, directory / package, ignore=shutil.ignore_patterns("__pycache__"))
    versions = directory / "cluster/versions.py"
    text = versions.read_text()
    assert text.count(f"\nNEWEST = {NEWEST}\n") == 1
    versions.write_text(text.replace(f"\nNEWEST = {NEWEST}\n", f"\nNEWEST = {OLDEST}\n"))
    return directory
