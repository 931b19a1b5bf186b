"""How a host is reached, and whose fault it is when it is not."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from chaos.cannot_run import BrokenOff, CannotRun
from chaos.cluster.provisioned import ssh
from chaos.cluster.provisioned.inventory import InventoryHost
from chaos.cluster.provisioned.ssh import SshConnection, command
from tests.ports import free_ports


def test_ssh_is_given_what_the_inventory_says() -> None:
    words = command(
        InventoryHost("n1", "192.0.2.1", "ops", "2222", "/key", ("-o", "ProxyJump=jump"), "/usr/bin/python3")
    )
    head, (mark, address, script) = words[:-3], words[-3:]
    assert head[0] == "ssh"
    assert head[-8:] == ["-p", "2222", "-l", "ops", "-i", "/key", "-o", "ProxyJump=jump"]
    assert "BatchMode=yes" in head
    assert any(word.startswith("ConnectTimeout=") for word in head)
    assert any(word.startswith("ServerAliveInterval=") for word in head)
    assert (mark, address) == ("--", "192.0.2.1")
    assert "sudo -n /usr/bin/python3" in script


def test_ssh_is_given_nothing_that_the_inventory_does_not_say() -> None:
    assert not {"-p", "-l", "-i"} & set(command(InventoryHost("n1", "n1")))


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh")
def test_a_host_that_does_not_answer_is_named_with_what_ssh_says(tmp_path: Path) -> None:
    [port] = free_ports(1)
    connection = SshConnection(InventoryHost("n1", "127.0.0.1", port=str(port), arguments=("-F", "/dev/null")))
    with pytest.raises(CannotRun, match=r"n1: ssh does not reach it at 127\.0\.0\.1: .*refused.*ansible_port"):
        connection.open()


def goes_to(directory: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a host does with the command, its last word."""
    program = directory / "ssh"
    program.write_text(f"#!/bin/sh\nfor word; do :; done\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'sudo: a password is required' >&2; exit 1", "ops may not become root: .*sudo without a password"),
        ("echo 'exec: python3: not found' >&2; exit 127", "there is no python3 on it.*ansible_python_interpreter"),
        ("echo Welcome; exec sleep 100", "its shell, or a banner, says b'Welcome'"),
        ("exit 3", "the program there ended with status 3"),
    ],
)
def test_whose_fault_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str) -> None:
    goes_to(tmp_path, script, monkeypatch)
    with pytest.raises(CannotRun, match=f"^n1: {why}"):
        SshConnection(InventoryHost("n1", "n1", "ops")).open()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_host_without_the_service_is_told_by_its_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's text travels, starts, and answers."""
    goes_to(tmp_path, 'exec sh -c "$word"', monkeypatch)
    with pytest.raises(CannotRun, match=r"n1: there is no service holdfast-node.*provisioned by playbooks/site\.yml"):
        SshConnection(InventoryHost("n1", "n1")).open()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_what_lies_where_a_login_begins_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("json", "select", "signal"):
        (home / f"{name}.py").write_text("raise SystemExit('somebody else wrote this')\n")
    goes_to(tmp_path, f'cd {home}; PYTHONPATH={home} exec sh -c "$word"', monkeypatch)
    with pytest.raises(CannotRun, match="n1: there is no service holdfast-node"):
        SshConnection(InventoryHost("n1", "n1")).open()


def test_whose_run_it_is_stands_where_it_runs() -> None:
    assert re.fullmatch(rf"\S+@\S+, process {os.getpid()}, since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d \S+", ssh.who())
    assert f"'{ssh.who()}'" in shlex.split(command(InventoryHost("n1", "n1"), ssh.who())[-1])[-1]


def test_a_host_that_is_away_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_to(tmp_path, f"test -e {tmp_path}/once || {{ touch {tmp_path}/once; exit 255; }}; exit 3", monkeypatch)
    with pytest.raises(CannotRun, match="ended with status 3"):
        SshConnection(InventoryHost("n1", "n1")).open(patience_s=0.5)


def test_a_host_that_is_lost_in_a_run_is_another_matter_than_one_that_was_never_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers once, and is gone."""
    monkeypatch.setattr(ssh, "REOPENS_WITHIN_S", 0.0)
    script = f"test -e {tmp_path}/once && exit 255; touch {tmp_path}/once"
    goes_to(tmp_path, script + """; echo '{"ok": {}}'; exec sleep 1000""", monkeypatch)
    connection = SshConnection(InventoryHost("n1", "n1"))
    connection.open()
    process = connection._process
    assert process is not None
    process.kill()
    with pytest.raises(BrokenOff, match="n1 was lost: its connection broke, and then: n1: ssh does not reach it"):
        connection.order("pid")
    connection.close()
    with pytest.raises(CannotRun, match="ssh does not reach it") as never:
        SshConnection(InventoryHost("n1", "n1")).open()
    assert not isinstance(never.value, BrokenOff)


def test_silence_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_to(tmp_path, "exec sleep 1000", monkeypatch)
    monkeypatch.setattr(ssh, "OPENS_WITHIN_S", 0.2)
    connection = SshConnection(InventoryHost("n1", "n1"))
    with pytest.raises(CannotRun, match=r"n1: no answer within 0\.2 s"):
        connection.open()
    assert connection.close() == ""
