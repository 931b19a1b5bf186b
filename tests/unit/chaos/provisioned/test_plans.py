"""What can be done to nodes that a run has not started, and what is said of the rest."""

from __future__ import annotations

import dataclasses
import random
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from chaos.cannot_run import CannotRun
from chaos.checkers.all import judge_run
from chaos.checkers.verdict import Result
from chaos.cluster.provisioned.cluster import Provisioned, ProvisionedCluster
from chaos.cluster.provisioned.inventory import InventoryHost
from chaos.faults.catalogue import CATALOGUE, NEED_LINKS, UnfitFault, check_where
from chaos.faults.fault import CannotStrike, Scene
from chaos.history.history import History
from chaos.run import RunPlan, explained, judged, run
from holdfast.cli.commands.trials.chaos import chaos

PROCESSES = {"F0", "F1", "F1C", "F2", "F2C", "F13", "F13C", "F16", "F18", "F21"}


def can(name: str, no_links: str = "") -> bool:
    try:
        check_where([name], no_links=no_links)
    except UnfitFault:
        return False
    return True


def test_processes_can_be_hurt_anywhere_and_links_where_there_are_proxies() -> None:
    assert {name for name in CATALOGUE if can(name, "there are none")} == PROCESSES
    assert {name for name in CATALOGUE if can(name)} == PROCESSES | NEED_LINKS - {"F19", "F20"}


@pytest.mark.parametrize(
    ("workload", "fault", "why"),
    [
        ("W1", "F9", "F9, loss of power.*a disk on order below a node which the run itself.*there are F0, F1"),
        ("W1", "F15", "a clock on order"),
        ("W1", "F14", "a ZooKeeper which the run"),
        ("W1", "F10", "would damage, or delete, data"),
        ("W1", "F12", "would damage, or delete, data"),
        ("W5", "F1", "W5: its query of Spark knows no login"),
    ],
)
def test_what_cannot_be_there_is_refused_with_the_reason(workload: str, fault: str, why: str) -> None:
    with pytest.raises(CannotRun, match=why):
        RunPlan(workload, (fault,), inventory="hosts.yml").check()


def test_nodes_of_an_inventory_are_not_the_runs_own(tmp_path: Path) -> None:
    cluster = ProvisionedCluster(tmp_path, Provisioned([], warn=print))
    try:
        with pytest.raises(CannotStrike):
            assert Scene(cluster, "log", random.Random(1), 1.0).own is None
    finally:
        cluster.close()


def test_the_command_that_repeats_a_run_names_the_inventory() -> None:
    command = RunPlan("W1", ("F1",), nodes=3, inventory="my hosts.yml").command
    assert "--inventory 'my hosts.yml'" in command
    assert "--nodes" not in command


def test_a_run_on_an_inventory_is_not_repeated_without_a_login(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match=r"its nodes are those of hosts\.yml: run its command again"):
        run(RunPlan("W1", ("F1",), inventory="hosts.yml"), tmp_path)


def test_a_verdict_that_such_a_run_cannot_have_says_so() -> None:
    plan = RunPlan("W1", ("F1",), inventory="hosts.yml")
    [verdict] = [one for one in judged(plan, History()).verdicts if one.checker == "C18"]
    assert verdict.result is Result.NODATA
    assert "left out" in verdict.error
    [verdict] = [one for one in judged(RunPlan("W1", ("F1",)), History()).verdicts if one.checker == "C18"]
    assert verdict.error == ""


def test_a_verdict_that_was_found_is_left_as_it_is() -> None:
    judgement = judge_run(History())
    judgement = dataclasses.replace(
        judgement, verdicts=[dataclasses.replace(one, result=Result.FAILED) for one in judgement.verdicts]
    )
    assert explained(RunPlan("W1", ("F1",), inventory="hosts.yml"), judgement) == judgement


def test_a_host_that_is_not_reached_ends_a_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\necho 'no route to host' >&2\nexit 255\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin")
    plan = RunPlan("W1", ("F1",), inventory="hosts.yml")
    with pytest.raises(CannotRun, match="n1: ssh does not reach it at n1: no route to host"):
        run(plan, tmp_path / "run", provisioned=Provisioned([InventoryHost("n1", "n1")], warn=print))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--inventory", "x", "--nodes", "5"], "--nodes means nothing without nodes that the run has started"),
        (["--inventory", "x", "--defect", "y"], "--defect means nothing"),
        (["--listener", "outside"], "--listener means nothing without --inventory"),
        (["--ansible", "/opt"], "--ansible means nothing without --inventory"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(words: list[str], why: str) -> None:
    done = CliRunner().invoke(chaos, ["run", "--workload", "W1", "--faults", "F1", *words])
    assert done.exit_code == 2
    assert why in " ".join(done.output.split())


def test_an_inventory_that_is_not_there_is_said(tmp_path: Path) -> None:
    words = ["run", "--workload", "W1", "--faults", "F1", "--inventory", str(tmp_path / "x"), "--dir", str(tmp_path)]
    done = CliRunner().invoke(chaos, words)
    assert done.exit_code == 1
    assert f"there is no {tmp_path}/x" in " ".join(done.output.split())


def test_logs_of_a_run_that_has_failed_are_kept_and_named(tmp_path: Path) -> None:
    """No node is there that could be asked to delete them: nobody asks."""
    said: list[str] = []
    cluster = ProvisionedCluster(tmp_path, Provisioned([], warn=said.append))
    cluster._made.append("chaos-0a1b2c-chaos0")
    cluster.keep_logs()
    cluster.close()
    assert said == ["the run has failed, and its logs are kept: chaos-0a1b2c-chaos0; holdfast log delete ends them"]
