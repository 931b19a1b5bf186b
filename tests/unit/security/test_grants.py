"""What a principal may do: the rule, and how links and requests keep to it, also when it changes under them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cluster.metadata import GrantRecord
from holdfast import protocol
from holdfast.amqp import Error, LinkDetached, errors, symbol
from holdfast.amqp.framing.sasl import FixedLogin
from holdfast.client import AdminClient, AdminError, NetworkOptions, Security
from node.listener.attach import permissions
from node.security.authentication import Gate
from node.security.authorisation import Need, Policy
from node.security.principal import ANONYMOUS, Principal
from tests.unit.listener.support.peer import Peer, message
from tests.unit.security.people import KnownUsers, allow, deny, user

ANN = Principal("ann", "PLAIN")
TOKEN = Principal("ann", "XOAUTH2", frozenset({"writers"}))
KEYS = user("ann", "pencil")


def may(known: KnownUsers, operation: str, name: str, principal: Principal = ANN, kind: str = "log") -> bool:
    return Policy(known).may(principal, operation, kind, name)


ORDERS = allow("ann", "publish", "log", "orders")
NOBODY = deny("*", "publish", "log", "", prefix=True)


@pytest.mark.parametrize(
    ("grants", "operation", "name", "allowed"),
    [
        ([], "publish", "orders", False),
        ([ORDERS], "publish", "orders", True),
        ([ORDERS], "publish", "orders2", False),
        ([ORDERS], "consume", "orders", False),
        ([allow("bob", "publish", "log", "orders")], "publish", "orders", False),
        ([allow("ann", "publish", "group", "orders")], "publish", "orders", False),
        ([allow("*", "publish", "log", "orders")], "publish", "orders", True),
        ([allow("role:team", "publish", "log", "orders")], "publish", "orders", True),
        ([allow("role:other", "publish", "log", "orders")], "publish", "orders", False),
        ([allow("ann", "publish", "log", "ord", prefix=True)], "publish", "orders", True),
        ([allow("ann", "publish", "log", "", prefix=True)], "publish", "orders", True),
        ([allow("ann", "publish", "log", "orders2", prefix=True)], "publish", "orders", False),
        ([ORDERS, NOBODY], "publish", "orders", False),
        ([deny("role:team", "publish", "log", "orders"), ORDERS], "publish", "orders", False),
        ([deny("ann", "consume", "log", "orders"), ORDERS], "publish", "orders", True),
        ([ORDERS], "describe", "orders", True),
        ([ORDERS, deny("ann", "describe", "log", "orders")], "describe", "orders", False),
        ([allow("ann", "describe", "log", "orders")], "consume", "orders", False),
    ],
)  # fmt: skip
def test_the_rule(grants: list[GrantRecord], operation: str, name: str, allowed: bool) -> None:
    known = KnownUsers({"ann": user_with(KEYS, "team")}, grants)
    assert may(known, operation, name) is allowed


def user_with(record: Any, *roles: str) -> Any:
    return type(record)(record.name, record.sha256, record.sha512, roles)


def test_who_is_nobody_may_nothing() -> None:
    grants = [allow("*", "publish", "log", "", prefix=True), allow("ann", "publish", "log", "orders")]
    known = KnownUsers({"bob": user_with(KEYS)}, grants)
    assert not may(known, "publish", "orders"), "a user that is gone"
    assert not may(known, "publish", "orders", ANONYMOUS)
    assert may(known, "publish", "orders", TOKEN), "whom a token names need not be a user"
    assert may(KnownUsers(), "publish", "orders", ANONYMOUS), "an open cluster"
    assert not Policy(KnownUsers(), never_open=True).may(ANONYMOUS, "publish", "log", "orders")
    assert not Policy(KnownUsers(), ["ops"]).may(ANONYMOUS, "publish", "log", "orders")
    assert Policy(KnownUsers(), ["ann"]).may(TOKEN, "cluster", "cluster", "")


def test_a_name_is_no_role() -> None:
    """Whoever makes certificates or tokens may put any name into them."""
    known = KnownUsers({}, [allow("role:writers", "publish", "log", "orders")])
    assert not may(known, "publish", "orders", Principal("role:writers", "EXTERNAL"))


def test_administrators_and_roles_of_tokens() -> None:
    known = KnownUsers({"ann": user_with(KEYS, "admin")}, [allow("role:writers", "publish", "log", "orders")])
    assert may(known, "delete", "orders")
    assert may(known, "publish", "orders", Principal("eve", "XOAUTH2", frozenset({"writers"})))
    assert not may(known, "publish", "orders", Principal("eve", "XOAUTH2"))


def test_changes_count_at_once() -> None:
    known = KnownUsers({"ann": user_with(KEYS)}, [allow("ann", "publish", "log", "orders")])
    policy = Policy(known)
    assert policy.may(ANN, "publish", "log", "orders")
    known.change(allow("ann", "publish", "log", "others"))
    assert not policy.may(ANN, "publish", "log", "orders")
    assert policy.may(ANN, "publish", "log", "others")


def test_every_request_is_somebodys_to_make() -> None:
    """What changes users or nodes is for administrators; nothing else may be forgotten in the table."""
    all_of_them = {f"{kind}.{verb}" for kind, verb in protocol.REQUESTS}
    assert set(permissions.REQUESTS) <= all_of_them
    for_administrators = {
        "node.drain", "node.resume", "node.repair", "node.readmit", "cluster.finalize", "cluster.cancel-moves",
        "node.add", "node.remove", "node.cancel", "log.reassign", "log.cancel-moves",
        "cluster.balance", "cluster.settings",
        "user.add", "user.password", "user.roles", "user.remove", "user.list", "grant.add", "grant.remove",
        "grant.list", "transaction-group.forget", "rule.add", "rule.rotate", "rule.remove", "rule.keys", "rule.list",
    }  # fmt: skip
    assert all_of_them - set(permissions.REQUESTS) == for_administrators
    for operation in for_administrators:
        (need,) = permissions.needs_of_request(operation, {"name": "x"})
        assert need == ("cluster", "cluster", "")


def test_the_clusters_own_logs_are_for_administrators() -> None:
    assert list(permissions.needs_of_request("log.alter", {"name": "orders"})) == [("alter", "log", "orders")]
    assert list(permissions.needs_of_request("log.alter", {"name": "$transactions"})) == [("cluster", "cluster", "")]


def test_who_may_alter_a_log_chooses_how_many_replicas_it_has_and_not_where() -> None:
    alter = ("alter", "log", "orders")
    assert list(permissions.needs_of_request("log.alter", {"name": "orders", "replicas": 2})) == [alter]
    for operation in ("log.reassign", "log.cancel-moves"):
        assert list(permissions.needs_of_request(operation, {"name": "orders"})) == [("cluster", "cluster", "")]


# --------------------------------------------------------------------------------------------------- links


def logging_in(name: str = "ann", password: str = "pencil") -> FixedLogin:
    return FixedLogin("PLAIN", f"\0{name}\0{password}".encode())


@asynccontextmanager
async def as_ann(serving: Any, *grants: GrantRecord) -> AsyncIterator[tuple[Any, KnownUsers, Peer]]:
    known = KnownUsers({"ann": user_with(KEYS), "root": user_with(KEYS, "admin")}, list(grants))
    gate = Gate(Policy(known), plain_without_tls=True)
    async with serving(gate=gate) as node, Peer(node.port, sasl=logging_in()) as peer:
        yield node, known, peer


def ended(peer: Peer, link: Any) -> Error | None:
    found = [event.error for event in peer.history if isinstance(event, LinkDetached) and event.link is link]
    return found[0] if found else None


async def refused(peer: Peer, link: Any) -> str:
    await peer.flush()
    await peer.until(lambda: ended(peer, link) is not None)
    error = ended(peer, link)
    assert error is not None
    return error.condition


PUBLISH, CONSUME = allow("ann", "publish", "log", "trades"), allow("ann", "consume", "log", "trades")


async def test_an_attach_needs_its_grant(serving: Any) -> None:
    async with as_ann(serving, PUBLISH) as (node, _, peer):
        sender = await peer.sender("trades")
        assert sender.credit
        assert await refused(peer, peer.engine.open_receiver("trades")) == errors.UNAUTHORIZED_ACCESS
        for name in ("secret", "trades2"):
            link = peer.engine.open_sender(name)
            assert await refused(peer, link) == errors.UNAUTHORIZED_ACCESS, "nobody learns which logs there are"
        async with Peer(node.port, sasl=logging_in("root")) as root:
            assert await refused(root, root.engine.open_sender("secret")) == errors.NOT_FOUND


async def test_nobody_takes_a_group_a_producer_or_a_transactional_id_without_its_grant(serving: Any) -> None:
    async with as_ann(serving, PUBLISH, CONSUME, allow("ann", "consume", "group", "mine")) as (_, _, peer):

        def receiver(group: str) -> Any:
            said = {protocol.LINK_CONSUMER_GROUP: group, protocol.LINK_PARTITION: symbol("0")}
            return peer.engine.open_receiver("trades", properties=said)

        assert await refused(peer, receiver("theirs")) == errors.UNAUTHORIZED_ACCESS
        mine = receiver("mine")
        await peer.flush()
        await peer.until(lambda: getattr(mine, "remote_source", None) is not None)
        said = dict.fromkeys(protocol.PRODUCER_NAMES) | {protocol.PRODUCER_ID: 7, protocol.LINK_PARTITION: symbol("0")}
        assert await refused(peer, peer.engine.open_sender("trades", properties=said)) == errors.UNAUTHORIZED_ACCESS


async def test_a_producer_goes_on_under_the_id_that_it_was_given(serving: Any) -> None:
    async with as_ann(serving, PUBLISH) as (_, _, peer):
        said: dict[str, Any] = dict.fromkeys(protocol.PRODUCER_NAMES) | {protocol.LINK_PARTITION: symbol("0")}
        for _ in range(2):
            link = peer.engine.open_sender("trades", properties=said)
            await peer._opened(link)
            said |= {name: link.remote_properties[name] for name in protocol.PRODUCER_NAMES}


def test_a_transaction_needs_its_grant() -> None:
    known = KnownUsers({"ann": user_with(KEYS)}, [allow("ann", "transact", "transactional-id", "mine")])
    policy = Policy(known)
    assert policy.may_some(ANN, "transact", "transactional-id"), "a transaction that nobody else can know of"
    assert not policy.may(ANN, "transact", "transactional-id", "theirs")
    known.change()
    assert not policy.may_some(ANN, "transact", "transactional-id")
    known.change(
        allow("ann", "transact", "transactional-id", "mine"), deny("*", "transact", "transactional-id", prefix=True)
    )
    assert not policy.may_some(ANN, "transact", "transactional-id")


async def test_links_end_when_their_right_does(serving: Any) -> None:
    async with as_ann(serving, PUBLISH, CONSUME) as (node, known, peer):
        sender, receiver = await peer.sender("trades"), await peer.receiver("trades")
        sender.send_many([message()])
        await peer.flush()
        await peer.until(lambda: peer.outcomes.get(sender))
        known.change(CONSUME)
        node.ring()
        assert await refused(peer, sender) == errors.UNAUTHORIZED_ACCESS
        assert ended(peer, receiver) is None
        known.change(CONSUME, without="ann")
        node.ring()
        assert await refused(peer, receiver) == errors.UNAUTHORIZED_ACCESS
        assert await refused(peer, peer.engine.open_receiver("trades")) == errors.UNAUTHORIZED_ACCESS


async def test_the_first_user_closes_the_cluster_under_who_is_anonymous(serving: Any) -> None:
    known = KnownUsers()
    async with serving(gate=Gate(Policy(known))) as node, Peer(node.port) as peer:
        sender = await peer.sender("trades")
        known.users["ann"] = user_with(KEYS, "admin")
        known.change()
        node.ring()
        assert await refused(peer, sender) == errors.UNAUTHORIZED_ACCESS


# --------------------------------------------------------------------------------------------------- requests


async def test_requests_need_their_grants(serving: Any) -> None:
    async with as_ann(serving, allow("ann", "describe", "log", "trades")) as (node, known, _):
        await node.create("hidden", 1)

        def admin(name: str) -> AdminClient:
            security = Security(user=name, password="pencil")
            return AdminClient(f"127.0.0.1:{node.port}", options=NetworkOptions(security=security))

        async with admin("ann") as ann, admin("root") as root:
            assert (await ann.describe_log("trades"))["name"] == "trades"
            assert [log["name"] for log in await ann.list_logs()] == ["trades"]
            assert [log["name"] for log in await root.list_logs()] == ["trades", "hidden"]
            for asked in (
                ann.describe_log("hidden"),
                ann.create_log("more"),
                ann.delete_log("trades"),
                ann.list_users(),
                ann.add_grant("ann", "delete", "log", "trades"),
                ann.set_password("root", "x"),
                ann.drain_node(1),
                ann.cluster_status(),
            ):
                with pytest.raises(AdminError, match="may not") as refusal:
                    await asked
                assert refusal.value.code == "not-authorized"
                assert "holdfast grant add ann " in str(refusal.value)
            assert not any(operation == "log.delete" for operation, _ in node.requests)
            assert (await ann.whoami())["principal"] == "ann"
            known.change()
            with pytest.raises(AdminError, match="may not"):
                await ann.describe_log("trades")


@pytest.mark.parametrize(
    ("need", "says", "grants"),
    [
        (Need("cluster", "cluster", None), "administer the cluster", "cluster cluster"),
        (Need("describe", "cluster", ""), "describe the cluster", "describe cluster"),
        (Need("publish", "log", "a b"), "publish to log 'a b'", "publish 'log:a b'"),
        (Need("consume", "group", "g"), "read group 'g'", "consume group:g"),
        (Need("transact", "transactional-id", None), "use transactional-id", "transact 'transactional-id:*'"),
    ],
)
def test_a_refusal_is_a_sentence_and_names_the_command(need: Need, says: str, grants: str) -> None:
    assert str(need) == says
    assert need.as_grant("ann") == f"holdfast grant add ann {grants}"


def test_no_command_is_made_of_what_would_end_its_line() -> None:
    assert Need("publish", "log", "a\nb").as_grant("ann") == "holdfast grant add"
