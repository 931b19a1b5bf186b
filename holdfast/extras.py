"""Parts of Holdfast that need more than the client and the command line do.

The rule: a caller that asks for such a part without its packages is told in one sentence which command brings them;
nothing else needs them.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final, NamedTuple


class OptionalPart(NamedTuple):
    """A part that not every installation has."""

    needed: str  # in a sentence: "to run a node"
    install: str
    code: str  # a module of ours that is in another distribution than this one; empty: none
    distribution: str  # the one that has it
    modules: tuple[str, ...]  # of other projects


EXTRAS: Final = {
    "node": OptionalPart(
        "to run a node",
        "pip install holdfast-node",
        "node.program",
        "holdfast-node",
        (
            "aiohttp",
            "cryptography",
            "google.protobuf",
            "grpc",
            "jwt",
            "kazoo",
            "prometheus_client",
            "pysyncobj",
            "rocksdict",
            "websockets",
        ),
    ),
    "zookeeper": OptionalPart("to reach ZooKeeper", "pip install 'holdfast[zookeeper]'", "", "", ("kazoo",)),
    "chaos": OptionalPart(
        "to run chaos tests",
        "run `make install` in a checkout of Holdfast",
        "chaos.run",
        "the code of chaos tests",
        ("pyarrow", "toxiproxy"),
    ),
    "spark": OptionalPart(
        "to run a job on Spark", "pip install 'holdfast[spark]'", "", "", ("matplotlib", "pandas", "pyarrow", "pyspark")
    ),
    "pipeline": OptionalPart(
        "to run this job on Spark",
        "pip install holdfast-pipeline",
        "pipeline.session",
        "holdfast-pipeline",
        ("matplotlib", "pandas", "pyarrow", "pyspark"),
    ),
}
"""What each part needs, by the name of its extra or command."""


def missing(part: str) -> str | None:
    """Say what is missing of a part and how to install it; None if nothing is."""
    needs = EXTRAS[part]
    if needs.code and not _is_there(needs.code):
        lacking = [needs.distribution]
    else:
        lacking = [module for module in needs.modules if not _is_there(module)]
    if not lacking:
        return None
    return f"{needs.needed}, this installation of Holdfast lacks {', '.join(lacking)}: {needs.install}"


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its package is missing, too
        return False
