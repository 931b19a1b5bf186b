"""What a run needs beside the nodes: a Toxiproxy server, pyarrow, and for some faults a C compiler or ZooKeeper."""

from __future__ import annotations

import pytest

from chaos.cluster import zookeeper
from chaos.disk import NoCompiler, build
from chaos.faults.catalogue import NEED_DISKS, NEED_ZOOKEEPER
from chaos.proxies import HOW_TO_GET, find_server


@pytest.fixture(autouse=True)
def _what_runs_need() -> None:
    pytest.importorskip("toxiproxy", reason="toxiproxy-python is not installed: pip install -e '.[chaos]'")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install -e '.[chaos]'")
    if find_server() is None:
        pytest.skip(f"there is no Toxiproxy server: {HOW_TO_GET}")


def skip_without_means(faults: tuple[str, ...]) -> None:
    """What some faults need, and is not everywhere."""
    if NEED_ZOOKEEPER & set(faults) and (why := zookeeper.missing()):
        pytest.skip(why)
    if NEED_DISKS & set(faults):
        try:
            build()
        except NoCompiler as error:
            pytest.skip(str(error))
