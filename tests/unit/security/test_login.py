"""Logging in: each mechanism with the right and the wrong credential, from our clients and from stock ones."""

from __future__ import annotations

import asyncio
import base64
import http.server
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from proton import ConnectionException, SSLDomain
from proton.utils import BlockingConnection

from holdfast.amqp.framing.handshake import AMQP_HEADER, SASL_HEADER, frame, performative
from holdfast.amqp.framing.sasl import Challenge, LoginAccepted, LoginDenied, LoginLater
from holdfast.client import AdminClient, AuthenticationError, NetworkOptions, Security
from node.security.audit import AuditLog
from node.security.authentication import Gate
from node.security.authorisation import Policy
from node.security.sasl_mechanisms import Plain
from node.security.scram import Credentials, Scram
from node.security.shared_access import SharedAccessKeys
from node.security.tls import ServerTls
from node.security.tokens import TokenRefused, TokenRules, TokenVerifier
from tests.authority import Authority
from tests.unit.security.people import KnownUsers, Provider, user

MakeTls = Callable[..., ServerTls]


@pytest.fixture(scope="module")
def known() -> KnownUsers:
    return KnownUsers({"ann": user("ann", "pencil", "admin")})


async def whoami(port: int, **security: Any) -> dict[str, Any]:
    options = NetworkOptions(security=Security(**security), first_contact_s=0.1)
    async with AdminClient(f"127.0.0.1:{port}", timeout_s=60, options=options) as admin:
        return await admin.whoami()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", ""])
async def test_a_user_logs_in_by_its_password_without_tls(serving: Any, known: KnownUsers, mechanism: str) -> None:
    gate = Gate(Policy(known), plain_without_tls=mechanism == "PLAIN")
    async with serving(gate=gate) as node:
        me = await whoami(node.port, user="ann", password="pencil", mechanism=mechanism)
        assert (me["principal"], me["mechanism"]) == ("ann", mechanism or "SCRAM-SHA-512")
        assert me["roles"] == ["admin"]
        for name, password in (("ann", "pen"), ("bob", "pencil"), ("ann", "pencil ")):
            with pytest.raises(AuthenticationError, match="credentials are wrong"):
                await whoami(node.port, user=name, password=password, mechanism=mechanism)


async def test_inside_tls_a_login_is_bound_to_the_certificate(
    serving: Any, tls: MakeTls, authority: Authority, known: KnownUsers
) -> None:
    server = tls()
    async with serving(tls=server, gate=Gate(Policy(known), tls=server)) as node:
        me = await whoami(node.port, ca=authority.ca, user="ann", password="pencil")
        assert me["mechanism"] == "SCRAM-SHA-512-PLUS"
        for mechanism in ("SCRAM-SHA-256-PLUS", "PLAIN"):
            me = await whoami(node.port, ca=authority.ca, user="ann", password="pencil", mechanism=mechanism)
            assert me["mechanism"] == mechanism
        with pytest.raises(AuthenticationError):
            await whoami(node.port, ca=authority.ca, user="ann", password="pen")
        # In the midst of the two a third, with a certificate of its own, would hide that binding is offered.
        with pytest.raises(AuthenticationError, match="credentials are wrong"):
            await whoami(node.port, ca=authority.ca, user="ann", password="pencil", mechanism="SCRAM-SHA-512")


async def test_a_refusal_over_tls_reaches_a_program_on_any_loop(
    serving: Any, tls: MakeTls, authority: Authority, known: KnownUsers
) -> None:
    """asyncio's own transports cannot be aborted once they were closed twice, unlike uvloop's."""
    server = tls()

    def refused(port: int) -> None:
        with pytest.raises(AuthenticationError, match="credentials are wrong"):
            asyncio.run(whoami(port, ca=authority.ca, user="nobody", password="pencil"))

    async with serving(tls=server, gate=Gate(Policy(known), tls=server)) as node:
        await asyncio.to_thread(refused, node.port)


async def test_a_password_is_never_taken_for_anonymous(serving: Any, known: KnownUsers) -> None:
    async with serving(gate=Gate(Policy(known))) as node:
        with pytest.raises(AuthenticationError, match="this cluster asks for a login") as refusal:
            await whoami(node.port)
        assert "--user and --password-file" in refusal.value.advice
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(AMQP_HEADER)
        assert await reader.read() == SASL_HEADER
        writer.close()
    async with serving() as node:
        assert (await whoami(node.port))["principal"] == "anonymous"
        with pytest.raises(AuthenticationError, match="offers ANONYMOUS"):
            await whoami(node.port, user="ann", password="pencil")


async def test_a_password_is_not_said_aloud(serving: Any, known: KnownUsers) -> None:
    """PLAIN is neither offered outside TLS, nor taken by our client when it is."""
    async with serving(gate=Gate(Policy(known))) as node:
        with pytest.raises(AuthenticationError, match="it would have to be PLAIN"):
            await whoami(node.port, user="ann", password="pencil", mechanism="PLAIN")
    lonely = KnownUsers(known.users)
    gate = Gate(Policy(lonely), plain_without_tls=True)
    offered = list(gate.mechanisms(gate.channel(_NoTransport())))
    assert offered == ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]


class _NoTransport(asyncio.BaseTransport):
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


@pytest.mark.parametrize(
    ("anonymous", "host", "let_in"),
    [
        ("loopback", "127.0.0.1", True),
        ("loopback", "::1", True),
        ("loopback", "0.0.0.0", False),
        ("loopback", "10.0.0.1", False),
        ("always", "10.0.0.1", True),
        ("never", "127.0.0.1", False),
    ],
)
def test_where_nobody_needs_to_log_in(known: KnownUsers, anonymous: Any, host: str, let_in: bool) -> None:
    policy = Policy(KnownUsers(), never_open=anonymous == "never")
    gate = Gate(policy, bind_host=host, anonymous=anonymous)
    assert ("ANONYMOUS" in gate.mechanisms(gate.channel(_NoTransport()))) is let_in
    assert gate.is_barred is not let_in
    with_users = Gate(Policy(known), bind_host=host, anonymous=anonymous)
    assert "ANONYMOUS" not in with_users.mechanisms(with_users.channel(_NoTransport()))


async def test_a_certificate_is_a_credential(
    serving: Any, tls: MakeTls, authority: Authority, known: KnownUsers
) -> None:
    server = tls()
    ann = authority.issue("ann")
    node_like = authority.issue("ann", uris=["holdfast://prod/node/1"], file="node-like")
    async with serving(tls=server, gate=Gate(Policy(known), tls=server)) as node:
        me = await whoami(node.port, ca=authority.ca, cert=ann.cert, key=ann.key)
        assert (me["principal"], me["mechanism"], me["roles"]) == ("ann", "EXTERNAL", ["admin"])
        with pytest.raises(AuthenticationError, match="to be EXTERNAL"):
            await whoami(node.port, ca=authority.ca, cert=node_like.cert, key=node_like.key)


async def test_proton_logs_in(serving: Any, tls: MakeTls, authority: Authority, known: KnownUsers) -> None:
    server = tls()
    ann = authority.issue("ann")

    def connect(port: int, certificate: bool, **how: Any) -> None:
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(authority.ca)
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
        if certificate:
            domain.set_credentials(ann.cert, ann.key, None)
        connection = BlockingConnection(f"amqps://localhost:{port}", ssl_domain=domain, timeout=60, **how)
        connection.create_sender("trades")
        connection.close()

    async with serving(tls=server, gate=Gate(Policy(known), tls=server)) as node:
        await asyncio.to_thread(connect, node.port, True, allowed_mechs="EXTERNAL")
        await asyncio.to_thread(connect, node.port, False, user="ann", password="pencil")
        with pytest.raises(ConnectionException, match="uthentication"):
            await asyncio.to_thread(connect, node.port, False, user="ann", password="pen")
        with pytest.raises(ConnectionException, match="uthentication"):
            await asyncio.to_thread(connect, node.port, False, allowed_mechs="EXTERNAL")


# --------------------------------------------------------------------------------------------------- tokens


@pytest.fixture
def provider(tmp_path: Path) -> tuple[Provider, TokenRules]:
    made = Provider()
    (tmp_path / "keys.pem").write_bytes(Provider().public + made.public)
    rules = TokenRules(str(tmp_path / "keys.pem"), issuer="us", audience="holdfast", roles_claim="roles")
    return made, rules


GOOD = {"iss": "us", "aud": "holdfast"}


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "XOAUTH2"])
async def test_a_token_is_a_credential(
    serving: Any, provider: tuple[Provider, TokenRules], known: KnownUsers, mechanism: str
) -> None:
    maker, rules = provider
    gate = Gate(Policy(known), tokens=TokenVerifier(rules), plain_without_tls=True)
    async with serving(gate=gate) as node:
        me = await whoami(node.port, token=maker.token("bob", **GOOD, roles=["admin"]), mechanism=mechanism)
        assert (me["principal"], me["mechanism"], me["roles"]) == ("bob", mechanism, ["admin"])
        with pytest.raises(AuthenticationError, match="credentials are wrong"):
            await whoami(node.port, token=Provider().token("bob", **GOOD), mechanism=mechanism)


async def test_a_connection_ends_with_its_token(
    serving: Any, provider: tuple[Provider, TokenRules], known: KnownUsers
) -> None:
    maker, rules = provider
    asked: list[str] = []

    def fresh() -> str:
        asked.append(maker.token("bob", lives_s=1, **GOOD, roles=["admin"]))
        return asked[-1]

    gate = Gate(Policy(known), tokens=TokenVerifier(rules), plain_without_tls=True)
    async with serving(gate=gate) as node:
        options = NetworkOptions(security=Security(token=fresh))
        async with AdminClient(f"127.0.0.1:{node.port}", options=options) as admin:
            while len(asked) < 2:  # the client comes back with another
                await admin.whoami()


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"aud": "holdfast"}, "iss"),
        ({"iss": "us"}, "aud"),
        ({**GOOD, "aud": "others"}, "udience"),
        ({**GOOD, "iss": "others"}, "ssuer"),
        ({**GOOD, "lives_s": -60}, "xpired"),
        ({**GOOD, "name": ""}, "no name"),
        ({**GOOD, "name": "a\nb"}, "no name"),
        ({**GOOD, "roles": 7}, "roles"),
        ({**GOOD, "nbf": time.time() + 86_400}, "not yet"),
    ],
)
def test_a_token_that_says_too_little_is_refused(
    provider: tuple[Provider, TokenRules], claims: dict[str, Any], why: str
) -> None:
    maker, rules = provider
    with pytest.raises(TokenRefused, match=why):
        TokenVerifier(rules).verify(maker.token(**claims), "XOAUTH2")


def test_keys_come_from_a_set_and_strangers_cannot_make_it_be_asked_for(tmp_path: Path) -> None:
    maker = Provider()
    keys, asked = [maker.jwk("one")], 0

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal asked
            asked += 1
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"keys": keys}).encode())

        def log_message(self, *_: object) -> None:
            """Silent."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        verifier = TokenVerifier(TokenRules(jwks_url=f"http://127.0.0.1:{server.server_port}/keys"))
        assert verifier.verify(maker.token("ann", kid="one"), "XOAUTH2").name == "ann"
        keys.append(maker.jwk("two"))
        assert verifier.verify(maker.token("ann", kid="two"), "XOAUTH2").name == "ann", "a new key is looked for"
        before = asked
        for number in range(20):
            with pytest.raises(TokenRefused):
                verifier.verify(maker.token("ann", kid=f"made-up-{number}"), "XOAUTH2")
        assert asked == before
        server.shutdown()


def test_a_token_does_not_choose_how_it_is_checked(provider: tuple[Provider, TokenRules]) -> None:
    maker, rules = provider
    claims = {"sub": "ann", "exp": time.time() + 60, **GOOD}
    by_public_key = _signed_with_public_key(maker.public, claims)
    for forged in (jwt.encode(claims, None, algorithm="none"), by_public_key, "a.b.c", ""):
        with pytest.raises(TokenRefused):
            TokenVerifier(rules).verify(forged, "XOAUTH2")
    without_end = jwt.encode({"sub": "ann", **GOOD}, maker._key, algorithm="ES256")
    with pytest.raises(TokenRefused, match="exp"):
        TokenVerifier(rules).verify(without_end, "XOAUTH2")


def _signed_with_public_key(key: bytes, claims: dict[str, Any]) -> str:
    """The old trick: the public key as the secret of an HMAC."""
    import hashlib
    import hmac

    def part(data: bytes) -> bytes:
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    text = part(b'{"alg":"HS256","typ":"JWT"}') + b"." + part(json.dumps(claims).encode())
    return (text + b"." + part(hmac.digest(key, text, hashlib.sha256))).decode()


# --------------------------------------------------------------------------------------------------- strangers


def refused(*facts: str) -> None:
    """Nobody listens."""


def test_nobody_learns_who_has_an_account(known: KnownUsers) -> None:
    """The same salt each time, another one for each name and each cluster; the refusal comes with the proof."""

    def first(name: str, secret: bytes = b"s" * 32) -> bytes:
        credentials = Credentials(known.users.get, lambda: secret)
        answer = Scram("SCRAM-SHA-256", credentials, None, refused).respond(f"n,,n={name},r=abc".encode())
        assert isinstance(answer, Challenge)
        salt, iterations = answer.data.split(b",")[1:]
        assert iterations == b"i=20000"
        assert len(base64.b64decode(salt[2:])) in (16, 32)
        return salt

    assert first("bob") == first("bob")
    assert len({first("bob"), first("eve"), first("bob", b"t" * 32), first("ann")}) == 4
    for name in ("ann", "bob"):
        scram = Scram("SCRAM-SHA-256", Credentials(known.users.get, lambda: b"s" * 32), None, refused)
        answer = scram.respond(f"n,,n={name},r=abc".encode())
        assert isinstance(answer, Challenge)
        nonce = answer.data.split(b",")[0]
        proof = base64.b64encode(bytes(32))
        assert isinstance(scram.respond(b"c=biws," + nonce + b",p=" + proof), LoginDenied)
        plain = Plain(Credentials(known.users.get, lambda: b"s" * 32), SharedAccessKeys(known, None), refused).respond(
            f"\0{name}\0guess".encode()
        )
        assert isinstance(plain, LoginLater), "a name that is none takes as long"
        assert isinstance(plain.work(), LoginDenied)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0",
        b"ann\0pencil",
        b"bob\0ann\0pencil",
        b"\0ann\0pencil\0",
        b"\0\xff\0pencil",
        b"\0ann\0" + bytes(2000),
    ],
)
def test_plain_takes_nothing_but_a_user_and_its_password(known: KnownUsers, data: bytes) -> None:
    answer = Plain(Credentials(known.users.get, lambda: b"s" * 32), SharedAccessKeys(known, None), refused).respond(
        data
    )
    answer = answer.work() if isinstance(answer, LoginLater) else answer
    assert isinstance(answer, LoginDenied)


@pytest.mark.parametrize(
    "messages",
    [[b""], [b"n,,"], [b"\xff"], [b"n,a=bob,n=ann,r=x"], [b"p=tls-unique,,n=ann,r=x"], [b"n,,n=ann,r=x", b""],
     [b"n,,n=ann,r=x", b"c=biws,r=x,p=AAAA"], [b"n,,n=ann,r=x", b"n,,n=ann,r=x"]],
)  # fmt: skip
def test_scram_takes_nothing_but_scram(known: KnownUsers, messages: list[bytes]) -> None:
    scram = Scram("SCRAM-SHA-256", Credentials(known.users.get, lambda: b"s" * 32), None, refused)
    answers = [scram.respond(message) for message in messages]
    assert isinstance(answers[-1], LoginDenied)
    assert not any(isinstance(answer, LoginAccepted) for answer in answers)


async def test_logins_are_written_down_and_credentials_are_not(serving: Any, known: KnownUsers, tmp_path: Path) -> None:
    audit = AuditLog(str(tmp_path / "audit.jsonl"))
    async with serving(gate=Gate(Policy(known), plain_without_tls=True, audit=audit)) as node:
        await whoami(node.port, user="ann", password="pencil")
        with pytest.raises(AuthenticationError):
            await whoami(node.port, user="ann", password="blotter", mechanism="PLAIN")
    text = await asyncio.to_thread((tmp_path / "audit.jsonl").read_text)
    events = [json.loads(line) for line in text.splitlines()]
    assert [(one["event"], one["user"], one["mechanism"]) for one in events] == [
        ("let-in", "ann", "SCRAM-SHA-512"),
        ("refused", "ann", "PLAIN"),
    ]
    assert "blotter" not in text
    assert "pencil" not in text


def test_the_audit_log_is_bounded_whatever_comes(tmp_path: Path) -> None:
    now = [1000.0]
    audit = AuditLog(str(tmp_path / "a"), 100_000, lambda: now[0])
    for _ in range(1000):
        audit.note("refused", often=True, user="x" * 50)
    assert len((tmp_path / "a").read_text().splitlines()) == 100
    audit.note("administered", operation="log.delete")
    now[0] += 1
    audit.note("refused", often=True)
    lines = [json.loads(line) for line in (tmp_path / "a").read_text().splitlines()]
    assert [line["event"] for line in lines[100:]] == ["administered", "left-out", "refused"]
    assert lines[101]["lines"] == 900
    for _ in range(5000):
        audit.note("administered", operation="x" * 50)
    audit.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 100_000
    assert {path.name for path in tmp_path.iterdir()} == {"a", "a.1"}
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_first_message_of_sasl_in_pieces(known: KnownUsers) -> None:
    """The gate's mechanisms, driven by an engine byte by byte."""
    from holdfast.amqp import AuthenticationWork, Engine

    gate = Gate(Policy(known), plain_without_tls=True)
    engine = Engine("server", container_id="n", mechanisms=lambda: gate.mechanisms(gate.channel(_NoTransport())))
    said = SASL_HEADER + frame(1, performative(0x41, [jwt_symbol("PLAIN"), b"\0ann\0pencil"]))
    for byte in said:
        engine.receive(bytes((byte,)))
    (event,) = engine.events()
    assert isinstance(event, AuthenticationWork)
    engine.authenticated(event.work())
    engine.receive(AMQP_HEADER)
    assert engine.identity.name == "ann"


def jwt_symbol(text: str) -> Any:
    from holdfast.amqp import symbol

    return symbol(text)


@pytest.mark.parametrize("honest", [True, False])
def test_a_server_has_to_prove_that_it_knows_the_user(known: KnownUsers, honest: bool) -> None:
    """One in the midst, that lets anybody in to hear what they send."""
    from holdfast.amqp import AuthenticationWork, ConnectionClosed, Engine
    from holdfast.client.transport.security.sasl_login import login_of

    class Liar(Scram):
        def respond(self, data: bytes) -> Any:
            answer = super().respond(data)
            return answer if honest or self._scram.stage < 4 else LoginAccepted("whoever")

    credentials = Credentials(known.users.get, lambda: b"s" * 32)
    offered = {"SCRAM-SHA-256": lambda: Liar("SCRAM-SHA-256", credentials, None, refused)}
    server = Engine("server", container_id="n", mechanisms=offered)
    login = login_of(Security(user="ann", password="pencil"), lambda: None, "h", 1)
    client = Engine("client", container_id="c", sasl=login)
    client.open()
    events: list[Any] = []
    for _ in range(8):
        while data := client.data_to_send():
            server.receive(data)
        while data := server.data_to_send():
            client.receive(data)
        for event in client.events():
            events.append(event)
            if isinstance(event, AuthenticationWork):
                client.authenticated(event.work())
    closed = [event for event in events if isinstance(event, ConnectionClosed)]
    assert client.opened is honest
    assert bool(closed) is not honest
    if not honest:
        assert "proved" in str(closed[0].error)
