"""Parts of Holdfast that need more packages than the client and the command line do.

The rule: who asks for such a part without its packages is told in one sentence which command brings them; nobody who
does not ask for it needs them.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

EXTRAS: Final = {
    "node": (
        "cryptography",
        "google.protobuf",
        "grpc",
        "jwt",
        "kazoo",
        "prometheus_client",
        "pysyncobj",
        "rocksdict",
    ),
    "zookeeper": ("kazoo",),
    "chaos": ("pyarrow", "toxiproxy"),
    "spark": ("matplotlib", "pandas", "pyarrow", "pyspark"),
}
"""Extra of the distribution (pyproject.toml) -> modules that its packages bring."""

NEEDED_BY: Final = {
    "node": "to run a node",
    "zookeeper": "to reach ZooKeeper",
    "spark": "to run a job on Spark",
    "chaos": "to run chaos tests",
}


def missing(extra: str) -> str | None:
    """Say what is missing of an extra and how to install it; None if nothing is."""
    lacking = [module for module in EXTRAS[extra] if not _is_there(module)]
    if not lacking:
        return None
    return (
        f"{NEEDED_BY[extra]}, this installation of Holdfast lacks {', '.join(lacking)}: pip install 'holdfast[{extra}]'"
    )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its package is missing, too
        return False
