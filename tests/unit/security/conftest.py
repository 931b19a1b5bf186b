"""These tests run on uvloop, as a node does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from node.security.tls import Certificate, ServerTls, TlsFiles
from tests.authority import Authority
from tests.unit.listener.support.single import SingleNode

Serving = Callable[..., Any]


def pytest_asyncio_loop_factories(config: Any, item: Any) -> Mapping[str, Callable[[], Any]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def tls(authority: Authority) -> Callable[..., ServerTls]:
    """TLS of a listener on loopback; clients may show certificates of the same authority."""

    def make(**more: Any) -> ServerTls:
        files = authority.issue("node", ["127.0.0.1", "localhost"])
        given = {"client_ca_file": authority.ca, **more}
        return ServerTls(TlsFiles(Certificate(files.cert, files.key), **given))

    return make


@pytest.fixture
def serving(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Serving:
    """A node with a log `trades` of one partition, whose listener is configured as told. It may meet no bug."""

    @asynccontextmanager
    async def serve(**config: Any) -> AsyncIterator[SingleNode]:
        caplog.set_level("INFO")
        single = await SingleNode(tmp_path / "data", **config).start()
        await single.create("trades", 1)
        try:
            yield single
        finally:
            await single.stop()
        assert not [record.getMessage() for record in caplog.records if "a bug" in record.getMessage()]

    return serve
