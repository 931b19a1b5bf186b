"""A wrong configuration is refused with the key, the reason and what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.metadata import command_validation
from node import config as node_config
from node.config import ConfigError, load, parse, parse_address

GOOD = """
[node]
id = 1
data_dir = "data"
[cluster]
name = "dev"
peers = [{ id = 1, address = "127.0.0.1:7101" }, { id = 2, address = "127.0.0.1:7102" }]
[storage]
durability = "fsync"
[[listener]]
bind = "127.0.0.1:5672"
"""


LISTENERS_17 = "".join(f'[[listener]]\nname = "{n}"\nbind = "h:{n}"\n' for n in range(1, 17)) + "[[listener]]"


def test_what_is_taken_the_metadata_take() -> None:
    """A node would try for ever to register what is refused."""
    assert node_config.MAX_LISTENERS == command_validation.MAX_LISTENERS
    assert node_config.MAX_LISTENER_NAME_CHARACTERS == command_validation.MAX_LISTENER_NAME_CHARACTERS
    assert node_config.MAX_ADDRESS_CHARACTERS <= command_validation.MAX_ADDRESS_CHARACTERS


def test_a_complete_file_is_read() -> None:
    config = parse(GOOD)
    assert config.rpc_addresses == {1: "127.0.0.1:7101", 2: "127.0.0.1:7102"}
    assert str(config.listener[0].advertised) == "127.0.0.1:5672"


def test_a_node_listens_on_every_address_when_it_advertises_one() -> None:
    config = parse(GOOD.replace('bind = "127.0.0.1:5672"', 'bind = "0.0.0.0:5672"\nadvertise = "node1.example:5672"'))
    assert str(config.listener[0].advertised) == "node1.example:5672"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[storage]", "[storage]\nspeed = 3", "unknown key 'speed' in [storage]"),
        ('bind = "127.0.0.1:5672"', 'bind = "127.0.0.1:5672"\nfoo = 1', "unknown key 'foo' in [listener[0]]"),
        ("id = 1\n", "id = 0\n", "node.id: 0 cannot stand here; write a whole number from 1 to 2147483647"),
        ("id = 1\n", 'id = "one"\n', 'node.id: "one" cannot stand here; write a whole number from 1'),
        ("id = 1\n", "id = 9\n", "not among"),
        ('"fsync"', '"maybe"', 'storage.durability: "maybe" cannot stand here; write "fsync" or "replicated"'),
        ('"fsync"', "3", 'storage.durability: 3 cannot stand here; write "fsync" or "replicated"'),
        ('"fsync"', '"fsync"\ndirect_writes = "yes"', 'storage.direct_writes: "yes" cannot stand here; write true or'),
        ('"fsync"', '"fsync"\nretention_waits_s = "1"', "write a number of 0.0 or more"),
        ('data_dir = "data"', "", "node.data_dir: is missing; write a text in quotes"),
        ('data_dir = "data"', 'data_dir = ""', "node.data_dir: is empty"),
        ("[storage]", "[storage]\nspeed = 3", "there may be: durability, min_free_bytes"),
        ("{ id = 2, address", "{ id = 2, adress", "unknown key 'adress' in [cluster.peers[1]]"),
        (
            '{ id = 2, address = "127.0.0.1:7102" }',
            '"b:1"',
            'peers[1]: "b:1" cannot stand here; write a table with id, ad',
        ),
        (
            "[[listener]]",
            '[security]\nadministrators = "ann"\n[[listener]]',
            "write a list, [...], and in it a text in",
        ),
        ("[[listener]]", '[security]\nadministrators = [""]\n[[listener]]', "security.administrators: a name is empty"),
        (
            "[[listener]]",
            '[security.token]\nalgorithms = ["X"]\n[[listener]]',
            'algorithms[0]: "X" cannot stand here; write "E',
        ),
        (
            'bind = "127.0.0.1:5672"',
            'bind = "127.0.0.1:1"\naddress_map = { "1" = 3 }',
            "address_map[...]: write a text",
        ),
        (
            'bind = "127.0.0.1:5672"',
            'bind = "127.0.0.1:1"\naddress_map = [1]',
            "write a table, { key = value }: for each",
        ),
        ('bind = "127.0.0.1:5672"', 'bind = "127.0.0.1:1"\nname = ""', "listener.name: is empty"),
        ('bind = "127.0.0.1:5672"', 'bind = "0.0.0.0:1"', "listener.default.advertise: 0.0.0.0 means every address"),
        ('bind = "127.0.0.1:5672"', 'bind = "h:1"\nadvertise = "[::]:1"', "listener.default.advertise: :: means every"),
        (
            'bind = "127.0.0.1:5672"',
            'bind = "h:1"\naddress_map = { "1" = "0.0.0.0:1" }',
            "address_map.1: 0.0.0.0 means",
        ),
        ("127.0.0.1:7102", "0.0.0.0:7102", "cluster.peers (node 2): 0.0.0.0 means every address"),
        ('bind = "127.0.0.1:5672"', 'bind = "nowhere"', "write host:port"),
        ('bind = "127.0.0.1:5672"', 'bind = "127.0.0.1:99999"', "outside 1..65535"),
        ("id = 2, ", "id = 1, ", "stands twice"),
        ('name = "dev"', 'name = "a b"', "cluster.name"),
        ("[[listener]]\nbind", "[listener]\nbind", "listener: write [[listener]], a table for each"),
        ('bind = "127.0.0.1:5672"', 'bind = "127.0.0.1:1"\naddress_map = { "x" = "h:1" }', "no node id"),
        ("[node]", "[node", "not valid TOML"),
        ('bind = "127.0.0.1:5672"', f'bind = "{"h" * 300}:1"', "at most 300"),
        ('bind = "127.0.0.1:5672"', f'bind = "127.0.0.1:1"\nname = "{"n" * 201}"', "listener.name"),
        ("[[listener]]", LISTENERS_17, "at most 16"),
    ],
)
def test_a_mistake_is_named(old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        parse(GOOD.replace(old, new, 1), "node.toml")
    assert said in str(caught.value)
    assert str(caught.value).startswith("node.toml: ")


ZOOKEEPER = """
[node]
id = 1
data_dir = "data"
[cluster]
name = "dev"
address = "10.0.0.1:7101"
ca_file = "ca.pem"
cert_file = "node.pem"
key_file = "node.key"
[discovery]
kind = "zookeeper"
[discovery.zookeeper]
hosts = ["10.0.0.9:2181"]
[[listener]]
bind = "127.0.0.1:5672"
"""


def test_with_zookeeper_a_node_knows_its_own_address_only() -> None:
    config = parse(ZOOKEEPER)
    assert config.rpc_addresses == {1: "10.0.0.1:7101"}
    assert config.discovery.zookeeper.initial_nodes == 3


CERTIFICATES = 'ca_file = "ca.pem"\ncert_file = "node.pem"\nkey_file = "node.key"\n'


def test_beyond_loopback_nodes_have_certificates_or_say_that_they_need_none() -> None:
    loopback = parse(ZOOKEEPER.replace(CERTIFICATES, "").replace("10.0.0.1", "127.0.0.1"))
    assert not loopback.cluster.ca_file
    assert parse(ZOOKEEPER.replace(CERTIFICATES, "peers_without_tls = true\n")).cluster.peers_without_tls
    without = GOOD.replace("127.0.0.1:7102", "node2.example:7102")
    assert without != GOOD
    with pytest.raises(ConfigError, match=r"whoever reaches node2\.example:7102 could speak as a node"):
        parse(without)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (CERTIFICATES, "", "whoever reaches 10.0.0.1:7101 could speak as a node"),
        (CERTIFICATES, CERTIFICATES + "peers_without_tls = true\n", "leave one of the two out"),
        ('address = "10.0.0.1:7101"', "", "cluster.address"),
        ('address = "10.0.0.1:7101"', 'address = "0.0.0.0:7101"', "cluster.address: 0.0.0.0 means every address"),
        (
            'address = "10.0.0.1:7101"',
            'address = "10.0.0.1:7101"\npeers = [{ id = 1, address = "a:1" }]',
            "leave the list",
        ),
        ('hosts = ["10.0.0.9:2181"]', "", "discovery.zookeeper.hosts: none given"),
        ('hosts = ["10.0.0.9:2181"]', 'hosts = ["10.0.0.9"]', "write host:port"),
        ('hosts = ["10.0.0.9:2181"]', 'hosts = ["a:1"]\nroot = "x"', "discovery.zookeeper.root"),
        ('hosts = ["10.0.0.9:2181"]', 'hosts = ["a:1"]\ncert_file = "x"', "goes with key_file"),
        ('hosts = ["10.0.0.9:2181"]', 'hosts = ["a:1"]\nca_file = "x"', "write tls = true"),
        ('hosts = ["10.0.0.9:2181"]', 'hosts = ["a:1"]\ninitial_nodes = 0', "initial_nodes"),
        ('kind = "zookeeper"', 'kind = "static"', "cluster.address: is for discovery by ZooKeeper"),
        (
            'kind = "zookeeper"',
            'kind = "dns"',
            'discovery.kind: "dns" cannot stand here; write "static" or "zookeeper"',
        ),
    ],
)
def test_a_mistake_about_zookeeper_is_named(old: str, new: str, said: str) -> None:
    assert old in ZOOKEEPER
    with pytest.raises(ConfigError) as caught:
        parse(ZOOKEEPER.replace(old, new, 1))
    assert said in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "absent.toml")


def test_addresses_of_version_six_keep_their_brackets() -> None:
    address = parse_address("[::1]:5672", "key")
    assert (address.host, address.port) == ("::1", 5672)
    assert str(address) == "[::1]:5672"


def test_tls_of_a_listener_needs_its_files_and_nothing_is_given_in_vain() -> None:
    good = parse(GOOD + 'tls = "on"\ncert_file = "c.pem"\nkey_file = "k.pem"\nclient_ca_file = "ca.pem"')
    assert good.listener[0].tls == "on"
    for lines, word in (
        ('tls = "on"\ncert_file = "c.pem"', "key_file"),
        ('cert_file = "c.pem"', "is for TLS, which is off"),
        ('tls = "start"\ncert_file = "c"\nkey_file = "k"\nclient_certificate = "required"', "client_ca_file"),
        ('tls = "yes"', "tls"),
    ):
        with pytest.raises(ConfigError, match=word):
            parse(GOOD + lines)


def test_proxies_of_a_listener_are_addresses_or_networks() -> None:
    good = parse(GOOD + 'proxies = ["192.0.2.7", "2001:db8::/32"]')
    assert [str(network) for network in good.listener[0].proxy_networks] == ["192.0.2.7/32", "2001:db8::/32"]
    for given, word in (('["proxy.example"]', "no address and no network"), ('["192.0.2.7/24"]', "host bits"),
                        (str(["192.0.2.7"] * 65).replace("'", '"'), "name a network instead")):  # fmt: skip
        with pytest.raises(ConfigError, match=word):
            parse(GOOD + f"proxies = {given}")


def joining(more: str, peers: str = '{ id = 1, address = "127.0.0.1:7101" }') -> str:
    return (
        f'[node]\nid = 4\ndata_dir = "/d"\n[cluster]\nname = "dev"\njoin = true\npeers = [{peers}]\n{more}\n'
        '[[listener]]\nbind = "127.0.0.1:5672"\n'
    )


def test_a_node_that_joins_lists_seeds_and_its_own_address_beside_them() -> None:
    config = parse(joining('address = "127.0.0.1:7104"'))
    assert config.rpc_addresses == {1: "127.0.0.1:7101", 4: "127.0.0.1:7104"}
    both = '{ id = 1, address = "127.0.0.1:7101" }, { id = 4, address = "127.0.0.1:7104" }'
    assert parse(joining("", both)).rpc_addresses == config.rpc_addresses


@pytest.mark.parametrize(
    ("more", "peers", "told"),
    [
        ("", '{ id = 1, address = "127.0.0.1:7101" }', "cluster.address: write host:port"),
        ("", '{ id = 4, address = "127.0.0.1:7104" }', "at least one other node"),
        ('address = "127.0.0.1:7104"', '{ id = 4, address = "127.0.0.1:7104" }', "at least one other node"),
        (
            'address = "127.0.0.1:7105"',
            '{ id = 1, address = "127.0.0.1:7101" }, { id = 4, address = "127.0.0.1:7104" }',
            "stands in cluster.peers, too",
        ),
    ],
)
def test_mistakes_of_a_node_that_joins(more: str, peers: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse(joining(more, peers))
