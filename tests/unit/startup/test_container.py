"""The image's environment: a node's configuration comes of it, or a refusal that says what to write instead."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from node.config import ConfigError, load
from node.startup import container

CLOSED = {"HOLDFAST_PASSWORD": "correct horse"}
THREE = {"HOLDFAST_NODES": "node1:7101, node2:7101,node3:7101", "HOLDFAST_NODE_ID": "2"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(container, "HOME", tmp_path)
    monkeypatch.setattr(container, "GIVEN", tmp_path / "given.toml")
    monkeypatch.setattr(container, "HUBS", tmp_path / "Config.json")
    return tmp_path


def test_one_node_needs_a_password_alone(home: Path) -> None:
    config = load(container.configuration({**CLOSED, "PATH": "/bin"}))
    assert config.node.data_dir == str(home / "data")
    assert config.listener[0].advertise == "localhost:5672"
    assert config.storage.durability == "fsync"
    assert config.security.anonymous == "never"
    user = json.loads(Path(config.security.first_user_file).read_text())
    assert user["name"] == "operator"
    assert "correct horse" not in "".join(path.read_text() for path in home.iterdir() if path.is_file())


def test_variables_of_kubernetes_for_a_service_of_that_name_mean_nothing() -> None:
    made = {"HOLDFAST_SERVICE_HOST": "10.0.0.1", "HOLDFAST_PORT": "tcp://10.0.0.1:5672", "HOLDFAST_PORT_5672_TCP": "x"}
    load(container.configuration({**CLOSED, **made}))


def test_three_nodes_are_told_by_their_addresses() -> None:
    config = load(container.configuration({**CLOSED, **THREE, "HOLDFAST_CLUSTER": "orders"}))
    assert config.node.id == 2
    assert config.rpc_addresses == {1: "node1:7101", 2: "node2:7101", 3: "node3:7101"}
    assert config.listener[0].advertise == "node2:5672"
    assert config.cluster.name == "orders"


def test_a_password_may_come_from_a_file(home: Path) -> None:
    (home / "secret").write_text("correct horse\n")
    load(container.configuration({"HOLDFAST_PASSWORD_FILE": str(home / "secret"), "HOLDFAST_USER": "ann"}))
    assert json.loads((home / "first-user.json").read_text())["name"] == "ann"


def test_a_cluster_is_open_only_if_that_is_said() -> None:
    config = load(container.configuration({"HOLDFAST_ANONYMOUS": "always"}))
    assert config.security.anonymous == "always"
    assert not config.security.first_user_file


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "HOLDFAST_PASSWORD: none given"),
        ({"HOLDFAST_PASSWORD": ""}, "HOLDFAST_PASSWORD: none given"),
        ({**CLOSED, "HOLDFAST_DURABILTY": "fsync"}, "HOLDFAST_DURABILTY: there is no such variable"),
        ({**CLOSED, "HOLDFAST_DURABILITY": "none"}, r"storage\.durability"),
        ({**CLOSED, "HOLDFAST_ANONYMOUS": "always"}, "leave one of the two out"),
        ({**CLOSED, "HOLDFAST_PASSWORD_FILE": "/run/secrets/x"}, "give one of the two"),
        ({"HOLDFAST_ANONYMOUS": "yes"}, "'yes' is not `always`"),
        ({"HOLDFAST_ANONYMOUS": "never"}, "'never' is not `always`"),
        ({**CLOSED, **THREE, "HOLDFAST_NODE_ID": "4"}, "'4' is no place in HOLDFAST_NODES, 1..3"),
        ({**CLOSED, "HOLDFAST_NODE_ID": "one"}, "'one' is no place"),
        ({**CLOSED, "HOLDFAST_NODES": "node1"}, "node1"),
        ({**CLOSED, "HOLDFAST_CLUSTER": 'a"b'}, r"cluster\.name"),
    ],
)
def test_what_cannot_work_is_refused_by_name(given: dict[str, str], said: str, home: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        container.configuration(given)
    assert not (home / "node.toml").exists()


def test_a_mounted_configuration_is_taken_as_it_is_and_alone() -> None:
    container.GIVEN.write_text("[node]\n")
    assert container.configuration({"HOLDFAST_SERVER": "node1:5672"}) == container.GIVEN
    with pytest.raises(ConfigError, match=r"HOLDFAST_PASSWORD: .* is mounted"):
        container.configuration(CLOSED)


def test_the_emulators_configuration_makes_an_emulator_and_alone(home: Path) -> None:
    assert container.program(CLOSED) == ["node", "--config", str(home / "node.toml")]
    assert container.health_url() == "http://127.0.0.1:9101/health/ready"
    container.HUBS.write_text("{}")
    module, *words = container.program({"ACCEPT_EULA": "Y", "BLOB_SERVER": "azurite", "METADATA_SERVER": "azurite"})
    assert (module, words[0]) == ("holdfast.cli", "emulator")
    assert ("--bind", "0.0.0.0") in pairwise(words)
    assert ("--hubs", str(container.HUBS)) in pairwise(words)
    assert container.health_url() == "http://127.0.0.1:5300/health"
    with pytest.raises(ConfigError, match=r"HOLDFAST_PASSWORD: .*Config\.json is there"):
        container.program(CLOSED)


def test_an_emulator_that_lets_everybody_in_never_takes_the_place_of_a_configured_node() -> None:
    container.HUBS.write_text("{}")
    container.GIVEN.write_text("")
    with pytest.raises(ConfigError, match=r"given\.toml: .*Config\.json is there, too"):
        container.program({})
