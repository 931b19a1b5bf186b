"""Which cells of a matrix are run: those asked for, with the draw that they always have, where they can be."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from chaos.cannot_run import BrokenOff
from chaos.checkers.verdict import Result
from chaos.cluster.provisioned.cluster import Provisioned
from chaos.cluster.provisioned.inventory import InventoryHost
from chaos.matrix import SHORT, NotRun, Part, Site, Trial, chosen, full, left_out, run
from chaos.run import CannotRun, ChaosRun
from holdfast.cli.commands.trials.chaos import _not_run, chaos

SEED = 1000


def site(nodes: int, no_links: str = "", *, host: str = "n1") -> Site:
    return Site("hosts.yml", Provisioned([InventoryHost(host, host)], warn=print), nodes, no_links)


@pytest.mark.parametrize("of", [1, 2, 3, 7, 500])
def test_parts_are_the_whole_and_no_cell_twice(of: int) -> None:
    whole = list(enumerate(full()))
    parts = [chosen(full(), part=Part(number, of)) for number in range(1, of + 1)]
    assert sorted((place for part in parts for place, _ in part)) == [place for place, _ in whole]
    assert all(whole[place][1] == cell for part in parts for place, cell in part)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_part_is_every_third_cell_from_the_second_on() -> None:
    assert [place for place, _ in chosen(SHORT, part=Part(2, 3))] == list(range(1, len(SHORT), 3))


def test_cells_of_some_workloads_keep_their_places() -> None:
    places = [place for place, cell in enumerate(SHORT) if cell.workload in ("W1", "W3")]
    assert [place for place, _ in chosen(SHORT, ["W1", "W3"])] == places
    assert [place for place, _ in chosen(SHORT, ["W1", "W3"], Part(2, 2))] == places[1::2]


@pytest.mark.parametrize(("number", "of"), [(0, 3), (4, 3), (-1, 3), (1, 0)])
def test_a_part_that_there_is_not_is_refused(number: int, of: int) -> None:
    with pytest.raises(ValueError, match="there is no part"):
        Part(number, of)


@pytest.mark.parametrize("nodes", [3, 4, 5])
@pytest.mark.parametrize("no_links", ["", "node 1 has none"])
def test_what_is_left_can_be_run_and_what_is_left_out_cannot(nodes: int, no_links: str) -> None:
    """By the word of a single run."""
    there = site(nodes, no_links)
    for cell in full():
        plan = there.plan(cell.plan(1.0, SEED))
        why = there.why_not(cell)
        if not why:
            plan.check()
            assert (plan.inventory, plan.nodes) == ("hosts.yml", nodes)
        elif "proxy on each way" not in why and "nodes, and there are" not in why:  # which a plan does not know
            with pytest.raises(CannotRun):
                plan.check()
    some = {one for _, cell in chosen(full()) if not there.why_not(cell) for one in cell.faults}
    assert {"F1", "F2", "F13"} <= some
    assert ("F3" in some) == (no_links == "")


def test_cells_are_left_out_by_reason() -> None:
    cells = chosen(
        [Trial("W1", ("F9",)), Trial("W1", ("F1",)), Trial("W2", ("F9",)), Trial("W1", ("F1", "F2"), nodes=5)]
    )
    found = left_out(cells, site(3))
    assert {why: len(those) for why, those in found.items()} == {
        "that takes a disk on order below a node which the run itself has started": 2,
        "it takes 5 nodes, and there are 3": 1,
    }
    assert left_out(chosen([Trial("W1", ("F1", "F2"), nodes=5)]), site(7)) == {}


def refuse(one: ChaosRun | NotRun) -> None:
    pytest.fail(f"{one} was run")


def test_what_is_left_out_is_said_first_and_is_no_result(tmp_path: Path) -> None:
    said: list[str] = []
    cells = chosen([Trial("W1", ("F9",)), Trial("W5", ("F1",))])
    worst = run(cells, tmp_path, seconds=1, seed=SEED, say=said.append, done=refuse, site=site(3))
    assert worst is Result.NODATA, "nothing was proven"
    assert said == [
        "left out, 1 of 2: W1 F9: that takes a disk on order below a node which the run itself has started",
        "left out, 1 of 2: W5 F1: its query of Spark knows no login, and no TLS",
    ]


@pytest.fixture
def _no_route(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\necho 'no route to host' >&2\nexit 255\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin")


@pytest.mark.usefixtures("_no_route")
def test_hosts_that_are_gone_end_a_matrix_after_the_second_run(tmp_path: Path) -> None:
    """One may be back for the next run. Each cell has the seed of its place among all, left out or not. What was broken
    off has shown nothing (6), what could not begin is the command's to mend (1)."""
    said: list[str] = []
    told: list[ChaosRun | NotRun] = []
    cells = chosen([Trial("W1", (fault,)) for fault in ("F1", "F9", "F2", "F13")])
    with pytest.raises(BrokenOff, match=r"1 more were not tried, since two in a row .*n1: ssh does not reach it"):
        run(cells, tmp_path / "runs", seconds=1, seed=SEED, say=said.append, done=told.append, site=site(3))
    assert [(one.plan.faults, one.plan.seed) for one in told] == [(("F1",), SEED), (("F2",), SEED + 2)]
    assert all(isinstance(one, NotRun) and "no route to host" in one.why for one in told)
    assert (_not_run(BrokenOff("")).exit_code, _not_run(CannotRun("")).exit_code) == (6, 1)
    assert said[1].startswith("1 of 3: holdfast chaos run --workload W1 --faults F1 --inventory hosts.yml")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--workload", "W1,W9"], "W9 is none; there are W1"),
        (["--part", "4/3"], "there is no part 4/3"),
        (["--part", "two"], "--part two"),
        (["--part", "12/12"], "there is no cell in part 12/12"),
        (["--listener", "outside"], "--listener means nothing without --inventory"),
    ],
)
def test_cells_that_nobody_could_mean_are_refused(words: list[str], why: str) -> None:
    done = CliRunner().invoke(chaos, ["matrix", *words])
    assert done.exit_code == 2
    assert why in " ".join(done.output.split())
