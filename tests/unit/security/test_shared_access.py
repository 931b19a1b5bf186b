"""Tokens signed with a rule's key: what they open, and every way in which they do not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.metadata import RuleRecord
from holdfast.amqp.framing.sasl import LoginAccepted, LoginDenied, LoginLater
from node.security.authentication import Channel, Gate
from node.security.authorisation import Need, Policy
from node.security.connection_identity import MOST_TOKENS, Visitor
from node.security.principal import Principal
from node.security.secret_box import CannotOpen, SecretBox, read_keys
from node.security.shared_access import SharedAccess, SharedAccessKeys, SharedAccessRefused
from node.security.tokens import TokenRules, TokenVerifier
from tests.unit.security.people import KnownUsers, Provider, allow, user

BOX = SecretBox([b"k" * 32])
PRIMARY, SECONDARY = "cHJpbWFyeQ==", "c2Vjb25kYXJ5"
AUDIENCE = "sb://127.0.0.1:5672/orders"
SEND, READ = Need("publish", "log", "orders"), Need("consume", "log", "orders")


def token(
    resource: str = AUDIENCE, key: str = PRIMARY, rule: str = "all", lives_s: float = 3600, **changed: str
) -> str:
    """A token as the SDKs make it."""
    ends, encoded = str(int(time.time() + lives_s)), quote(resource, safe="")
    signature = base64.b64encode(hmac.digest(key.encode(), f"{encoded}\n{ends}".encode(), hashlib.sha256)).decode()
    parts = {"sr": encoded, "sig": quote(signature, safe=""), "se": ends, "skn": rule, **changed}
    return "SharedAccessSignature " + "&".join(f"{name}={value}" for name, value in parts.items())


def known(*claims: str, scope: str = "") -> KnownUsers:
    rule = RuleRecord("all", BOX.seal(PRIMARY, "all"), BOX.seal(SECONDARY, "all"), claims or ("manage",), scope)
    return KnownUsers(rules={"all": rule})


def right(access: KnownUsers, text: str, audience: str = "orders") -> SharedAccess:
    found = SharedAccessKeys(access, BOX).by_token(text, audience, is_open=False)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("claims", "allowed"),
    [
        (("send",), {"publish log", "describe log", "publish producer-group"}),
        (("listen",), {"consume log", "describe log", "consume group", "describe group"}),
        (("manage",), {"publish log", "consume log", "describe log", "consume group", "describe group", "alter log",
                       "create log", "delete log", "alter group", "delete group", "publish producer-group"}),
    ],
)  # fmt: skip
def test_claims_allow_what_they_say_and_nothing_else(claims: tuple[str, ...], allowed: set[str]) -> None:
    found = right(known(*claims), token())
    kinds = ("log", "group", "producer-group", "transactional-id", "cluster")
    operations = ("publish", "consume", "describe", "create", "alter", "delete", "transact", "cluster")
    asked = [Need(operation, kind, "orders") for kind in kinds for operation in operations]
    assert {f"{need.operation} {need.kind}" for need in asked if found.may(need)} == allowed


@pytest.mark.parametrize("key", [PRIMARY, SECONDARY])
def test_either_key_signs(key: str) -> None:
    assert right(known(), token(key=key)).may(SEND)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ({"key": "another"}, "InvalidSignature"),
        ({"rule": "nobody"}, "InvalidSignature"),
        ({"sig": quote(base64.b64encode(b"x" * 32).decode(), safe="")}, "InvalidSignature"),
        ({"se": "4000000000"}, "InvalidSignature"),
        ({"lives_s": -5}, "ExpiredToken"),
        ({"resource": "sb://127.0.0.1/others"}, "InvalidAudience"),
        ({"resource": "sb://127.0.0.1/orders/consumergroups/g"}, "InvalidAudience"),
        ({"resource": "sb://127.0.0.1/order"}, "InvalidAudience"),
        ({"sig": "!"}, "MalformedToken"),
        ({"se": "soon"}, "MalformedToken"),
        ({"se": "9" * 3000}, "MalformedToken"),
        ({"se": "-1"}, "MalformedToken"),
        ("Bearer x", "MalformedToken"),
        ("", "MalformedToken"),
    ],
)
def test_what_is_not_believed_is_refused_with_the_reason(made: Any, why: str) -> None:
    text = made if isinstance(made, str) else token(**made)
    with pytest.raises(SharedAccessRefused, match=why):
        right(known(), text)


@pytest.mark.parametrize(
    ("resource", "audience", "log", "group"),
    [
        ("sb://other-name/orders", "orders", "orders", "any"),
        ("amqps://h/Orders/ConsumerGroups/$default/partitions/3", "orders/consumergroups/$default/partitions/3",
         "orders", "$Default"),
        ("sb://h/", "orders/consumergroups/g", "whatever", "any"),
        ("sb://h/a.b/Partitions/0", "a.b/Partitions/0", "a.b", "any"),
    ],
)  # fmt: skip
def test_a_token_allows_what_it_names(resource: str, audience: str, log: str, group: str) -> None:
    found = right(known(), token(resource), audience)
    assert found.may(Need("consume", "log", log))
    assert found.may(Need("consume", "group", group))
    if found.hub:
        assert not found.may(Need("consume", "log", log + "x"))
    if found.group:
        assert not found.may(Need("consume", "group", "other"))


def test_a_rule_of_one_log_is_for_no_other() -> None:
    found = right(known(scope="orders"), token("sb://h/"))
    assert found.may(SEND)
    assert not found.may(Need("publish", "log", "others"))


def test_a_right_ends_with_its_rule_its_key_and_its_time() -> None:
    access = known()
    found = right(access, token())
    assert found.may(SEND)
    del access.rules["all"]
    assert not found.may(SEND)
    again = known()
    assert not SharedAccess(again, "all", found.sealed).may(SEND), "sealed anew: that key is another one"
    assert not SharedAccess(again, "all", again.rules["all"].primary, expires_ms=1).may(SEND)


def test_a_node_without_the_secret_says_so() -> None:
    for box in (None, SecretBox([b"o" * 32])):
        with pytest.raises(SharedAccessRefused, match="secrets_file"):
            SharedAccessKeys(known(), box).by_token(token(), "orders", is_open=False)


def test_in_an_open_cluster_form_and_end_are_looked_at_and_no_signature() -> None:
    keys = SharedAccessKeys(KnownUsers(), None)
    assert keys.by_token(token(key="SAS_KEY_VALUE", rule="RootManageSharedAccessKey"), "orders", is_open=True) is None
    with pytest.raises(SharedAccessRefused, match="ExpiredToken"):
        keys.by_token(token(lives_s=-5), "orders", is_open=True)


PIECES = st.sampled_from(
    ["sr=", "sig=", "se=", "skn=", "&", "SharedAccessSignature ", "%2F", "all", "1", "=", "é", "\0"]
)


@given(st.lists(PIECES | st.text(max_size=5), max_size=12).map("".join))
def test_any_text_is_refused_as_a_token_and_nothing_else_happens(text: str) -> None:
    with pytest.raises(SharedAccessRefused):
        SharedAccessKeys(known(), BOX).by_token(text, "orders", is_open=False)


# ---------------------------------------------------------------- a visitor that shows tokens


def visitor(access: KnownUsers, **gate: Any) -> Visitor:
    made = Visitor(Gate(Policy(access, ["root"]), box=BOX, **gate))
    made.known(None, "sdk")
    return made


async def test_a_visitor_may_do_what_its_tokens_allow_until_they_end() -> None:
    access = known("send")
    peer = visitor(access)
    assert not peer.may(SEND)
    assert await peer.put_token("servicebus.windows.net:sastoken", "orders", token()) is None
    assert peer.may(SEND)
    assert not peer.may(READ)
    assert 0 < (peer.next_end_s() or 0) <= 3600
    why = await peer.put_token("servicebus.windows.net:sastoken", "orders", token(key="wrong"))
    assert why is not None
    assert "InvalidSignature" in why
    assert peer.may(SEND), "the token before stays"
    access.rules.clear()
    assert not peer.may(SEND)


async def test_tokens_on_a_connection_are_bounded() -> None:
    peer = visitor(known())
    for number in range(MOST_TOKENS):
        assert await peer.put_token("x:sastoken", f"hub{number}", token("sb://h/")) is None
    assert "most on one connection" in (await peer.put_token("x:sastoken", "one more", token("sb://h/")) or "")
    assert await peer.put_token("x:sastoken", "hub0", token("sb://h/")) is None


async def test_a_jwt_brings_the_rights_of_its_principal(tmp_path: Path) -> None:
    provider = Provider()
    keys = tmp_path / "keys.pem"
    keys.write_bytes(provider.public)
    access = known()
    access.grants = [allow("ann", "publish", "log", "orders")]
    peer = visitor(access, tokens=TokenVerifier(TokenRules(keys_file=str(keys))))
    assert await peer.put_token("jwt", "orders", provider.token("ann")) is None
    assert peer.may(SEND)
    assert not peer.may(READ)
    assert await peer.put_token("jwt", "orders", Provider().token("ann")) == "the token is not accepted"
    assert await peer.put_token("saml", "orders", "x") == "the token is not accepted"


# ---------------------------------------------------------------- mechanisms


@pytest.mark.parametrize(
    ("access", "anonymous", "offered"),
    [
        (KnownUsers(), "loopback", {"ANONYMOUS", "MSSBCBS"}),
        (KnownUsers(), "never", set()),
        (known(), "never", {"ANONYMOUS", "MSSBCBS", "PLAIN"}),
        (KnownUsers({"ann": user("ann", "pencil")}), "loopback", {"SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"}),
    ],
    ids=["open", "open to nobody", "rules", "users"],
)
def test_mechanisms_that_sdks_look_for_are_offered_where_tokens_can_be_shown(
    access: KnownUsers, anonymous: Any, offered: set[str]
) -> None:
    gate = Gate(Policy(access, never_open=anonymous == "never"), anonymous=anonymous, box=BOX, plain_without_tls=True)
    assert set(gate.mechanisms(Channel())) == offered


def test_a_rule_and_either_of_its_keys_log_in_by_plain() -> None:
    access = known("send")
    plain = Gate(Policy(access), box=BOX, plain_without_tls=True).mechanisms(Channel())["PLAIN"]

    def login(name: str, key: str) -> Any:
        later = plain().respond(f"\0{name}\0{key}".encode())
        assert isinstance(later, LoginLater)
        return later.work()

    for key in (PRIMARY, SECONDARY):
        answer = login("all", key)
        assert isinstance(answer, LoginAccepted)
        peer = Visitor(Gate(Policy(access), box=BOX))
        assert isinstance(answer.identity, Principal)
        assert peer.known(answer.identity, "") is None
        assert peer.may(SEND)
        assert not peer.may(READ)
    for name, key in (("all", "wrong"), ("nobody", PRIMARY), ("all", "")):
        assert isinstance(login(name, key), LoginDenied)


# ---------------------------------------------------------------- the box


def test_a_secret_opens_for_what_it_belongs_to_only() -> None:
    sealed = BOX.seal("secret", "a")
    assert b"secret" not in sealed
    assert BOX.open(sealed, "a") == "secret"
    assert BOX.seal("secret", "a") != sealed
    for box, spoiled, about in ((BOX, sealed, "b"), (BOX, sealed[:-1], "a"), (SecretBox([b"x" * 32]), sealed, "a")):
        with pytest.raises(CannotOpen):
            box.open(spoiled, about)


def test_a_new_key_on_top_seals_and_the_old_one_still_opens(tmp_path: Path) -> None:
    lines = [base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2)]
    path = tmp_path / "secrets.key"
    path.write_text(lines[0] + "\n")
    sealed = SecretBox(read_keys(path)).seal("secret", "a")
    path.write_text("\n".join(reversed(lines)) + "\n\n")
    both = SecretBox(read_keys(path))
    assert both.open(sealed, "a") == "secret"
    with pytest.raises(CannotOpen):
        SecretBox(read_keys(path)[1:]).open(both.seal("secret", "a"), "a")


@pytest.mark.parametrize("text", ["", "\n", "short", base64.b64encode(b"x" * 16).decode()])
def test_a_file_without_a_key_is_refused_with_what_to_do(tmp_path: Path, text: str) -> None:
    path = tmp_path / "secrets.key"
    path.write_text(text)
    with pytest.raises(ValueError, match="openssl rand -base64 32"):
        read_keys(path)
