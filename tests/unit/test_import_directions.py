"""The tree tells the architecture only while imports run one way; this test guards the directions."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from tests.parsing import parsed

ROOT = Path(__file__).resolve().parents[2]
OURS = {"cluster", "node", "holdfast", "pipeline", "pyspark_holdfast", "benchmarks", "chaos", "tests"}

# package -> our packages it may import (itself always). The most specific package that holds a file decides.
ALLOWED: dict[str, set[str]] = {
    "cluster.raft": {"cluster.versions"},
    "cluster.stale_copy_detection": set(),
    "cluster.crash_points": set(),
    "cluster.watched_files": set(),
    "cluster.versions": set(),
    "cluster.features": {"cluster.versions"},
    "cluster.discovery": set(),
    "cluster.metadata": {"cluster.raft", "cluster.stale_copy_detection", "cluster.versions"},
    "cluster.rpc": {"cluster.raft", "cluster.stale_copy_detection", "cluster.versions", "cluster.watched_files"},
    "holdfast.protocol": set(),
    "holdfast.extras": set(),
    "holdfast.amqp": set(),
    "holdfast.records": {"holdfast.amqp"},
    "holdfast.client": {"holdfast.amqp", "holdfast.records", "holdfast.protocol", "holdfast.extras"},
    "holdfast.spark": {"holdfast.client"},
    "pyspark_holdfast": {"holdfast.spark"},
    "pipeline": {"holdfast.spark", "holdfast.client"},
    "holdfast.cli": {"holdfast.client", "holdfast.amqp", "holdfast.protocol", "holdfast.extras", "pipeline", "chaos"},
    "holdfast.testing": {"holdfast.client", "holdfast.cli.local_cluster", "holdfast.cli.shared"},
    "holdfast.pytest_plugin": {"holdfast.testing"},
    "node.storage": set(),
    "node.filters": {"holdfast.amqp"},
    "node.partition": {
        "cluster.raft",
        "cluster.crash_points",
        "cluster.features",
        "cluster.versions",
        "node.storage",
        "holdfast.records",
        "holdfast.amqp.errors",  # that a batch cannot be opened
    },
    "node.transaction_coordinator": {"cluster.raft", "cluster.crash_points", "cluster.versions", "node.partition"},
    "node.client_transactions": {
        "cluster.crash_points",
        "cluster.metadata",
        "node.transaction_coordinator",
        "node.partition",
    },
    "node.admin.errors": set(),
    "node.security": {"cluster.metadata", "cluster.watched_files", "holdfast.amqp"},
    "node.listener": {
        "holdfast.amqp",
        "holdfast.records",
        "holdfast.protocol",
        "node.filters",
        "node.partition",
        "node.client_transactions",
        "node.admin.errors",
        "node.security",
    },
    "node.checkpoint_store": {
        "cluster.metadata",
        "node.config",
        "node.listener.event_hubs.addresses",
        "node.partition",
        "node.security",
    },
    "node.startup.container": {"node.config", "holdfast.client.errors", "holdfast.client.transport.security.scram"},
    "node": {"cluster", "holdfast.amqp", "holdfast.records", "holdfast.protocol", "holdfast.extras"},
    "benchmarks": {"holdfast.amqp"},
    "benchmarks.client": {"benchmarks", "holdfast.client"},  # a client of ours is what it measures
    "benchmarks.subjects.cuts": {"benchmarks", "chaos", "holdfast.client"},  # chaos makes what it measures
    "benchmarks.subjects.elastic": {"benchmarks", "holdfast.client", "holdfast.cli"},  # nodes join as users' do
    "benchmarks.subjects.restarts": {"benchmarks", "holdfast.client", "holdfast.cli"},  # restarts as users do
    "benchmarks.checks": {"benchmarks", "chaos"},
    "chaos": {"holdfast.client", "holdfast.cli.local_cluster.child_processes"},
    "chaos.workloads.spark_job": {"chaos", "holdfast.spark"},  # the query that is at work in W5
    "chaos.at_scale": {"chaos", "pipeline"},  # the checkers that are jobs on Spark
    "chaos.defects": {  # they replace what is in there
        "cluster.discovery",
        "cluster.metadata",
        "cluster.raft",
        "holdfast.records",
        "node",
    },
    "chaos.cluster.stores": {"cluster.raft", "node.partition", "node.storage"},  # disks of stopped nodes
}

# Inside a package the folders stand on each other, too: the first of a line may not import those behind it.
LAYERS: list[list[str]] = [
    [
        "cluster.raft.pysyncobj.log_view",
        "cluster.raft.log.log_store",
        "cluster.raft.pysyncobj.core",
        "cluster.raft.group",
    ],
    ["cluster.raft.log.log_store", "cluster.raft.snapshot", "cluster.raft.group", "cluster.raft.multiraft"],
    ["holdfast.amqp.encoding", "holdfast.amqp.framing", "holdfast.amqp.links", "holdfast.amqp.engine"],
    ["holdfast.client.transport", "holdfast.client.produce", "holdfast.client.transact", "holdfast.client.producer"],
    ["holdfast.client.transport", "holdfast.client.consume", "holdfast.client.consumer"],
    ["holdfast.cli.shared", "holdfast.cli.local_cluster", "holdfast.cli.main_job", "holdfast.cli.commands"],
    ["node.listener.attach.link_plan", "node.listener.incoming.message_link", "node.listener.attach.attach_handler"],
    ["node.listener.attach.link_plan", "node.listener.outgoing.outgoing_link", "node.listener.attach.attach_handler"],
    ["node.listener.attach.attach_handler", "node.listener.connections.connection", "node.listener.listener"],
    ["node.partition.idempotence.producer_state", "node.partition.state_machine", "node.partition.partition_replica"],
    ["node.partition.consumer_groups.group_state", "node.partition.state_machine", "node.partition.partition_replica"],
    ["cluster", "node"],
]


def modules_imported(path: Path) -> set[str]:
    found: set[str] = set()
    for item in ast.walk(parsed(path)):
        if isinstance(item, ast.Import):
            found |= {alias.name for alias in item.names}
        elif isinstance(item, ast.ImportFrom):
            assert item.level == 0, f"{path}: relative import; write the absolute name"
            assert item.module is not None
            found |= {f"{item.module}.{alias.name}" for alias in item.names}
    return {name for name in found if name.split(".")[0] in OURS}


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_a_package_imports_only_what_lies_below_it(package: str) -> None:
    wrong = []
    for path in sorted(ROOT.joinpath(*package.split(".")).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if any(within(module, other) and len(other) > len(package) for other in ALLOWED):
            continue  # a more specific rule decides
        wrong += [
            f"{path.relative_to(ROOT)} imports {name}"
            for name in modules_imported(path)
            if not any(within(name, allowed) for allowed in ALLOWED[package] | {package})
        ]
    assert not wrong, "\n".join(wrong)


@functools.cache
def product_modules() -> dict[str, set[str]]:
    """Every module of the product -> the modules of the product that it imports, for types as well."""
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for top in ("cluster", "node", "holdfast", "pipeline", "pyspark_holdfast", "chaos")
        for path in ROOT.joinpath(top).rglob("*.py")
        if "_pb2" not in path.name
    }

    def module_of(name: str) -> str | None:
        """The module that an imported name is, or is in."""
        while name:
            if name in paths:
                return name
            name = name.rpartition(".")[0]
        return None

    return {
        name: {found for item in modules_imported(path) if (found := module_of(item)) is not None} - {name}
        for name, path in paths.items()
    }


def test_no_modules_import_each_other_in_a_circle() -> None:
    imports = {
        name: {other for other in others if not name.startswith(other + ".")}  # a package's face may name what is in it
        for name, others in product_modules().items()
    }
    rank: dict[str, int] = {}
    circle: list[str] = []

    def visit(name: str, way: list[str]) -> None:
        if name in way:
            circle.extend([*way[way.index(name) :], name])
        if name in rank or circle:
            return
        for other in sorted(imports[name]):
            visit(other, [*way, name])
        rank[name] = len(rank)

    for name in sorted(imports):
        visit(name, [])
    assert not circle, " imports ".join(circle)


APPLYING = ("cluster.metadata.state_machine", "node.partition.state_machine",
            "node.transaction_coordinator.state_machine")  # fmt: skip


def test_what_applies_entries_cannot_ask_for_a_feature() -> None:
    """Replicas would answer it at different entries. Raft, which calls it, knows of versions and of no feature."""
    reached: set[str] = set()
    waiting = [*APPLYING, *(name for name in product_modules() if within(name, "cluster.raft"))]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += product_modules()[name]
    assert {"cluster.metadata.state", "node.partition.partition_commands"} <= reached
    assert "cluster.features" not in reached


@pytest.mark.parametrize("layers", LAYERS, ids=lambda layers: layers[0])
def test_a_layer_imports_nothing_above_it(layers: list[str]) -> None:
    wrong = [
        f"{name} imports {other}"
        for place, layer in enumerate(layers)
        for name, others in product_modules().items()
        if within(name, layer)
        for other in others
        if any(within(other, above) for above in layers[place + 1 :])
    ]
    assert not wrong, "\n".join(wrong)


def test_only_calls_know_grpc() -> None:
    """And the certificates that both calls and streams show."""
    knowing = {
        str(path.relative_to(ROOT))
        for top in ("cluster", "node", "holdfast")
        for path in ROOT.joinpath(top).rglob("*.py")
        if re.search(r"^(import|from) grpc\b", path.read_text(), re.MULTILINE)
    }
    assert {path for path in knowing if not path.startswith("cluster/rpc/grpc_calls/")} == {"cluster/rpc/peer_tls.py"}


def test_every_folder_can_be_seen_at_a_glance() -> None:
    """A dozen files or fewer; a package's face and generated code do not count."""
    full = {
        str(folder.relative_to(ROOT)): count
        for top in ("cluster", "node", "holdfast", "pipeline", "pyspark_holdfast", "chaos")
        for folder in (ROOT / top, *(item for item in (ROOT / top).rglob("*") if item.is_dir()))
        if (count := sum(1 for f in folder.glob("*.py") if f.name != "__init__.py" and "_pb2" not in f.name)) > 12
    }
    assert not full, full


def test_every_package_says_what_lives_in_it() -> None:
    silent = [
        name
        for name in product_modules()
        if (path := ROOT.joinpath(*name.split("."), "__init__.py")).exists() and not ast.get_docstring(parsed(path))
    ]
    assert not silent, silent
