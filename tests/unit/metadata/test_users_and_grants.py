"""Users and grants in the state machine: what is taken, what is kept, and that old and new programs agree on it."""

from __future__ import annotations

import base64
from typing import Any

from cluster.metadata import (
    GrantRecord,
    MetadataMachine,
    MetadataView,
    Ok,
    Refusal,
    ScramKeys,
    encode_command,
    grant_command,
    put_user,
    register_node,
    remove_user,
)
from cluster.metadata import metadata_pb2 as pb
from tests.simulation.world.disk import SimBatch

KEYS = (ScramKeys(20_000, b"s" * 16, b"k" * 32, b"v" * 32), ScramKeys(20_000, b"s" * 16, b"k" * 64, b"v" * 64))
SECRET = b"x" * 32
GRANT = GrantRecord("ann", True, "publish", "log", "orders")


class Machine:
    def __init__(self) -> None:
        self.machine = MetadataMachine()
        self.view = MetadataView(self.machine)
        self._index = 1

    def do(self, command: pb.Command) -> Any:
        self._index += 1
        return self.machine.apply(self._index, 1, encode_command(command), SimBatch())

    def add(self, name: str, **more: Any) -> Any:
        return self.do(put_user(name, KEYS, **{"is_new": True, "roles": (), "secret": SECRET, **more}))


def test_users_come_change_and_go() -> None:
    machine = Machine()
    assert machine.add("ann", roles=["team", "admin", "team"]) == Ok()
    assert machine.view.users["ann"].roles == ("admin", "team")
    assert machine.view.access_secret == SECRET
    assert machine.add("bob", secret=b"y" * 32) == Ok()
    assert machine.view.access_secret == SECRET, "the first one's stays"
    other = (ScramKeys(30_000, b"t" * 16, b"k" * 32, b"v" * 32), KEYS[1])
    assert machine.do(put_user("ann", other, is_new=False)) == Ok()
    assert machine.view.users["ann"].sha256.iterations == 30_000
    assert machine.view.users["ann"].roles == ("admin", "team"), "a new password takes no roles away"
    assert machine.do(put_user("ann", None, is_new=False, roles=[])) == Ok()
    assert machine.view.users["ann"].roles == ()
    assert machine.view.users["ann"].sha256.iterations == 30_000
    assert machine.do(remove_user("ann")) == Ok()
    assert list(machine.view.users) == ["bob"]


def _keys(size: int = 32, iterations: int = 20_000, salt: int = 16) -> tuple[ScramKeys, ScramKeys]:
    return ScramKeys(iterations, b"s" * salt, b"k" * size, b"v" * size), KEYS[1]


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    machine = Machine()
    wrong = [
        put_user("ann", KEYS, is_new=True, secret=b"short"),
        put_user("ann", None, is_new=True, secret=SECRET),
        put_user("ann", KEYS, is_new=False, secret=SECRET),
        *(put_user(name, KEYS, is_new=True, secret=SECRET) for name in ("", "a b", "role:x", ".a", "ä", "a" * 129)),
        put_user("ann", KEYS, is_new=True, roles=["no role"], secret=SECRET),
        put_user("ann", KEYS, is_new=True, roles=[f"r{n}" for n in range(65)], secret=SECRET),
        *(put_user("ann", keys, is_new=True, secret=SECRET)
          for keys in (_keys(31), _keys(iterations=14_999), _keys(iterations=4_000_000_000), _keys(salt=11))),
        remove_user("ann"),
        grant_command(GRANT, remove=True),
        *(grant_command(GrantRecord(*fields))  # type: ignore[arg-type]
          for fields in (
              ("", True, "publish", "log", "x"), ("role:", True, "publish", "log", "x"),
              ("a b", True, "publish", "log", "x"), ("ann", True, "drink", "log", "x"),
              ("ann", True, "publish", "group", "x"), ("ann", True, "publish", "", "x"),
              ("ann", True, "publish", "log", ""), ("ann", True, "cluster", "cluster", "x"),
              ("ann", True, "publish", "log", "x" * 513),
          )),
    ]  # fmt: skip
    before, revision = machine.machine.checkpoint(), machine.view.access_revision
    for command in wrong:
        assert isinstance(machine.do(command), Refusal), command
    assert machine.machine.checkpoint() == before
    assert machine.view.access_revision == revision
    assert machine.add("ann") == Ok()
    assert machine.add("ann").code == "already-exists"


def test_grants_are_known_by_what_they_say() -> None:
    machine = Machine()
    denied = GrantRecord("ann", False, "publish", "log", "orders")
    for grant in (GRANT, GRANT, denied):
        assert machine.do(grant_command(grant)) == Ok()
    assert sorted(machine.view.grants) == [denied, GRANT]
    assert machine.do(grant_command(denied, remove=True)) == Ok()
    assert list(machine.view.grants) == [GRANT]


def test_a_checkpoint_brings_all_of_it_back_whatever_the_order() -> None:
    one, two = Machine(), Machine()
    changes = [
        put_user("ann", KEYS, is_new=True, roles=["b", "a"], secret=SECRET),
        put_user("bob", KEYS, is_new=True, secret=SECRET),
        grant_command(GRANT),
        grant_command(GrantRecord("*", False, "consume", "log", "x", True)),
    ]
    for change in changes:
        assert one.do(change) == Ok()
    for change in reversed(changes):
        assert two.do(change) == Ok()
    assert one.machine.checkpoint() == two.machine.checkpoint()
    restored = Machine()
    before = restored.view.access_revision
    restored.machine.restore(9, one.machine.checkpoint())
    assert restored.machine.checkpoint() == one.machine.checkpoint()
    assert restored.machine.state.access == one.machine.state.access
    assert restored.view.access_revision != before, "links are judged anew"


def test_only_a_change_of_rights_is_one() -> None:
    machine = Machine()
    before = machine.view.access_revision
    machine.do(register_node(1, "h:1", {}))
    assert machine.view.access_revision == before
    machine.do(grant_command(GRANT))
    assert machine.view.access_revision != before


def test_what_a_client_makes_of_a_password_is_taken() -> None:
    from holdfast.client.transport.security.scram import password_keys

    made = password_keys("pencil")
    sizes = {}
    for name, text in made.items():
        iterations, *parts = text.split(":")
        assert int(iterations) >= 15_000
        sizes[name] = [len(base64.b64decode(part)) for part in parts][1:]
    assert sizes == {"scram_sha_256": [32, 32], "scram_sha_512": [64, 64]}
