"""Nodes for the client's tests; each test gets its own, on ports that the system chooses."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from holdfast.client.produce import batch_queue
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.client.support.tiny_node import TinyLog, TinyNode
from tests.unit.listener.support.cluster import ListenerCluster


@pytest.fixture
def one_event_in_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a mishap of a tiny node meets one event, and its neighbours go on."""
    monkeypatch.setattr(batch_queue, "MOST_EVENTS", 1)


@pytest.fixture
async def node(one_event_in_each_batch: None) -> AsyncIterator[TinyNode]:
    one = await TinyNode(TinyLog()).start()
    one.lead()
    yield one
    await one.crash()


@pytest.fixture
async def pair(one_event_in_each_batch: None) -> AsyncIterator[tuple[TinyNode, TinyNode]]:
    """Two nodes over one log; the first leads partitions 0 and 1, the second 2 and 3."""
    log = TinyLog()
    first, second = await TinyNode(log).start(), await TinyNode(log).start()
    first.lead("0", "1")
    second.lead("2", "3")
    yield first, second
    await first.crash()
    await second.crash()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    """Three real nodes for the tests of a module, which start only once; each test has logs of its own."""
    async with ListenerCluster(tmp_path_factory.mktemp("nodes")) as cluster:
        yield Nodes(cluster)
