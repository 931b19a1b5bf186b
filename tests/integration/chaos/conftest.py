"""What a run needs beside the nodes: a Toxiproxy server, pyarrow, and for some faults a C compiler."""

from __future__ import annotations

import pytest

from chaos.disk import NoCompiler, build
from chaos.faults.catalogue import NEED_DISKS
from chaos.proxies import HOW_TO_GET, find_server


@pytest.fixture(autouse=True)
def _what_runs_need() -> None:
    pytest.importorskip("toxiproxy", reason="toxiproxy-python is not installed: pip install -e '.[chaos]'")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install -e '.[chaos]'")
    if find_server() is None:
        pytest.skip(f"there is no Toxiproxy server: {HOW_TO_GET}")


def skip_without_disks(faults: tuple[str, ...]) -> None:
    if NEED_DISKS & set(faults):
        try:
            build()
        except NoCompiler as error:
            pytest.skip(str(error))
