"""The modules by which plays bring the operator, users and grants into a cluster: what they change, and what not. The
plays themselves are `tests/ansible/security/test_users.py`."""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import stat
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import AuthenticationError, Security
from holdfast.client.sync import AdminClient
from holdfast.client.transport.network import NetworkOptions
from tests.ansible.playbooks import COLLECTION, ansible_directory
from tests.authority import Authority
from tests.integration.clusters.cluster import Cluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(ansible_directory() is None, reason="no Ansible here: make test brings it"),
    pytest.mark.skipif(os.geteuid() != 0, reason="files are given to root: that needs root"),
]

Module = Callable[..., dict[str, Any]]


@pytest.fixture
def ansible(monkeypatch: pytest.MonkeyPatch) -> Module:
    """Runs one of our modules, as a host's Python would, which has Holdfast's client; its answer."""
    programs = ansible_directory()
    assert programs is not None
    found = next((programs.parent / "lib").glob("python3.*/site-packages"))
    monkeypatch.setattr(sys, "path", [*sys.path, str(found)])
    testing = pytest.importorskip("ansible.module_utils.testing")

    def play(module: str, check: bool = False, **arguments: Any) -> dict[str, Any]:
        said = io.StringIO()
        with (
            testing.patch_module_args({**arguments, "_ansible_check_mode": check}),
            contextlib.redirect_stdout(said),
            contextlib.suppress(SystemExit),
        ):
            runpy.run_path(str(COLLECTION / "library" / f"{module}.py"), run_name="__main__")
        for secret in ("old", "new", "of-ann", "of-bob"):
            assert f'"{secret}"' not in said.getvalue()
        return dict(json.loads(said.getvalue()))

    return play


def whoami(cluster: Cluster, user: str, password: str) -> dict[str, Any]:
    options = NetworkOptions(security=Security(user=user, password=password))
    with AdminClient(cluster.address(1), options=options) as admin:
        return admin.whoami()


def refused(cluster: Cluster, user: str, password: str) -> bool:
    with pytest.raises(AuthenticationError):
        whoami(cluster, user, password)
    return True


def test_operator_users_and_grants(make_cluster: Callable[..., Cluster], tmp_path: Path, ansible: Module) -> None:
    cluster = make_cluster(nodes=1)
    cluster.start()
    usual = {"name": "ops", "server": cluster.address(1), "directory": str(tmp_path)}
    files = {path: tmp_path / path for path in ("operator.password", "operator.toml", "first-user.json")}

    def operator(password: str, *, ready: bool = True, check: bool = False, **more: Any) -> dict[str, Any]:
        return ansible("holdfast_operator", check, **{**usual, "password": password, "ready": ready, **more})

    assert operator("old", check=True)["did"] == ["user ops", *map(str, files.values())]
    assert not any(path.exists() for path in files.values())
    assert operator("old")["did"] == ["user ops", *map(str, files.values())]
    assert whoami(cluster, "ops", "old")["roles"] == ["admin"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in files.values()] == [0o600, 0o600, 0o640]
    assert not operator("old")["changed"]
    assert "is not ready to be told" in operator("new", ready=False)["msg"]
    assert operator("new", check=True)["changed"]
    assert whoami(cluster, "ops", "old")
    told = ["another password for ops", str(files["operator.password"]), str(files["first-user.json"])]
    assert operator("new")["did"] == told
    assert refused(cluster, "ops", "old")
    assert whoami(cluster, "ops", "new")
    assert not operator("new")["changed"]
    assert not operator("new", ready=False)["changed"]
    written = files["operator.password"].read_text()
    assert "the cluster knows users, but neither ops" in operator("old", directory=str(tmp_path / "none"))["msg"]
    assert operator("new", name="ops2")["did"][0] == "user ops2", "the one that was is let in, and adds it"
    assert operator("new")["did"] == [str(files["operator.toml"]), str(files["first-user.json"])]
    assert files["operator.password"].read_text() == written
    users_and_grants(cluster, tmp_path, ansible)


def test_both_modules_reach_a_node_that_takes_clients_by_tls_alone(
    make_cluster: Callable[..., Cluster], tmp_path: Path, ansible: Module
) -> None:
    authority = Authority(tmp_path / "authority")
    shown = authority.issue("node", ["127.0.0.1"])
    listener = {"tls": "on", "cert_file": shown.cert, "key_file": shown.key}
    cluster = make_cluster(nodes=1, listener=listener, security=Security(ca=authority.ca))
    cluster.start()
    where = {"server": cluster.address(1), "ca": authority.ca}
    usual = {"name": "ops", "password": "old", "directory": str(tmp_path), **where}

    def settings() -> dict[str, Any]:
        return tomllib.loads((tmp_path / "operator.toml").read_text())

    assert ansible("holdfast_operator", **usual, ready=True)["did"][0] == "user ops"
    assert (settings()["client"]["servers"], settings()["security"]["ca"]) == ([where["server"]], where["ca"])
    assert not ansible("holdfast_operator", **usual, ready=True)["changed"]
    config = str(tmp_path / "operator.toml")
    users = {"config": config, "server": where["server"], "users": [{"name": "ann", "password": "of-ann"}]}
    assert ansible("holdfast_users", **users)["did"] == ["user ann"]
    assert not ansible("holdfast_users", **users)["changed"]
    told = ansible("holdfast_operator", **usual, ready=True, written_server="127.0.0.1:1", written_ca="")
    assert told["did"] == [config], "the cluster was asked where it is"
    assert settings()["client"]["servers"] == ["127.0.0.1:1"]
    assert "ca" not in settings()["security"]


def users_and_grants(cluster: Cluster, directory: Path, ansible: Module) -> None:
    usual = {"config": str(directory / "operator.toml"), "server": cluster.address(1)}

    def play(users: dict[str, str], grants: list[str], check: bool = False, **more: Any) -> dict[str, Any]:
        listed = [{"name": name, "password": password, "roles": ["readers"]} for name, password in users.items()]
        return ansible("holdfast_users", check, **usual, users=listed, grants=grants, **more)

    both = {"ann": "of-ann", "bob": "of-bob"}
    grants = ["role:readers consume log:ev*", "ann publish log:events"]
    grants += ["bob describe cluster", "* consume log:x --deny"]
    everything = ["user ann", "user bob", *(f"grant {one}" for one in grants)]
    assert play(both, grants, check=True)["did"] == everything
    assert refused(cluster, "ann", "of-ann")
    assert play(both, grants)["did"] == everything
    assert whoami(cluster, "ann", "of-ann")["roles"] == ["readers"]
    assert not play(both, grants)["changed"]
    assert play({"ann": "new"}, grants[:1])["did"] == ["another password for ann"]
    assert refused(cluster, "ann", "of-ann")
    assert whoami(cluster, "bob", "of-bob")
    gone = ["no user bob", "no user ops2", *sorted(f"no grant {one}" for one in grants[1:])]
    assert sorted(play({"ann": "new"}, grants[:1], exclusive=True)["did"]) == sorted(gone)
    assert not play({"ann": "new"}, grants[:1], exclusive=True)["changed"]
    assert refused(cluster, "bob", "of-bob")
    assert whoami(cluster, "ops", "new")
    assert "fly" in play({"ann": "new"}, ["ann fly log:x"])["msg"], "what the cluster says of it"
