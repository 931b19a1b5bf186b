"""The bars of a day, while nodes and the driver are killed, against a calculation of their own from the trades file.

`make test` takes every 64th trade, kills one node, and runs the command in the Spark that its other tests have; with
HOLDFAST_WHOLE_DAY=1, as in `make soak`, it is the whole day, the command is a process of its own that is killed twice,
and nodes are killed every ten seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.conftest import number_from
from tests.integration.spark.driver import Driver
from tests.integration.spark.node_killer import NodeKiller
from tests.integration.spark.pipeline import day
from tests.integration.spark.session import QUICK_START, why_not
from tests.integration.workloads.beside import Beside

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.skipif(why_not() is not None, reason=why_not() or "")]

LOOK_EVERY_S = 0.05


@dataclass(frozen=True)
class Size:
    every: int  # of the file's trades
    max_events: int  # of a batch
    driver_dies: tuple[str, ...]  # when its checkpoint has this file
    node_kills: int | None  # None: until the job is done
    within_s: int


SHORT = Size(64, 2500, (), 1, 300)
WHOLE = Size(1, 20_000, ("query/commits/7", "target/offsets/0"), None, 1800)
SIZE = WHOLE if number_from("HOLDFAST_WHOLE_DAY", 0) else SHORT


class CommandHere:
    """Like a `Driver`, but in this thread, and in the Spark that is there: it cannot be killed."""

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        self._output = ""

    def start(self) -> None:
        """To its end."""
        result = CliRunner().invoke(main, self._arguments)
        self._output = result.output
        assert result.exit_code == 0, f"{result.output}{result.exception}"

    def has_ended(self) -> bool:
        return True

    def kill(self) -> None:
        assert not SIZE.driver_dies, "it is the Spark of other tests"

    def said(self) -> str:
        return self._output


class Trouble(Beside):
    """Nodes are killed once the query has planned its first batch."""

    def __init__(self, killer: NodeKiller, planned: Path) -> None:
        super().__init__("kills nodes")
        self._killer, self._planned = killer, planned

    def _main(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            if self._planned.exists():
                self._killer.turn()


@pytest.fixture
def driver(spark: Any, own_cluster: Cluster, tmp_path: Path) -> Iterator[Driver | CommandHere]:
    servers = [text for address in own_cluster.addresses for text in ("--server", address)]
    places = {"parquet": "bars", "checkpoint": "state", "picture": "day.png"}
    given = [text for name, place in places.items() for text in (f"--{name}", str(tmp_path / place))]
    options = ["--source", "trades", "--target", "bars", "--date", day.DATE.isoformat(), "--available-now"]
    options += ["--max-events", str(SIZE.max_events)]
    command = ["pipeline", "bars", *servers, *options, *given]
    more = {
        "PYSPARK_SUBMIT_ARGS": f"--master local[2] --driver-memory 1g --driver-java-options '{QUICK_START}' "
        "--conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2 pyspark-shell"
    }
    driver = Driver(["holdfast.cli", *command], tmp_path, more) if SIZE is WHOLE else CommandHere(command)
    yield driver
    driver.kill()


@pytest.mark.timeout(2 * SIZE.within_s)
def test_bars_of_a_day_are_right_to_the_cent_and_share_whoever_is_killed(
    spark: Any, own_cluster: Cluster, driver: Driver | CommandHere, tmp_path: Path
) -> None:
    trades = day.trades_of_day(SIZE.every)
    own_cluster.create("trades", partitions=4)
    own_cluster.create("bars", partitions=2)
    day.produce(own_cluster, "trades", trades)

    killer = NodeKiller(own_cluster, SIZE.node_kills)
    trouble = Trouble(killer, tmp_path / "state" / "query" / "offsets" / "0")
    trouble.begin()
    driver.start()
    for file in SIZE.driver_dies:
        path = tmp_path / "state" / file
        wait_until(lambda path=path: path.exists() or driver.has_ended(), f"{file} of the driver", SIZE.within_s)
        assert not driver.has_ended(), "it is killed while it works"
        driver.kill()
        driver.start()
    wait_until(driver.has_ended, "the driver to end", SIZE.within_s)
    trouble.let_go()
    trouble.join(SIZE.within_s)

    right = day.calculated(trades)
    assert day.in_parquet(spark, tmp_path / "bars") == right
    assert day.in_log(spark, own_cluster, "bars") == right
    assert len(killer.killed) >= 1
    assert f": {SIZE.max_events:,} events, " in driver.said(), "a line for each batch"
    assert "[Stage " not in driver.said(), "and nothing but lines"
    assert (tmp_path / "day.png").read_bytes().startswith(b"\x89PNG")
    print(f"{len(trades)} trades, {len(right)} bars, nodes killed: {killer.killed}; {driver.said()}")
