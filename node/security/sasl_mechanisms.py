"""The server's side of the SASL mechanisms.

Problem: each step of a login is a chance to tell an attacker which users exist here, or to keep a thousand others
waiting behind one hash.
Rules never broken: an unknown user looks like a known one up to the refusal: its salt is made from the cluster's secret
and its name, and hashing takes as long; hashing and keys of tokens are looked at in a thread; a proof is compared in
constant time (by `hmac`). SCRAM and the keys of users are in `scram.py`.
"""

from __future__ import annotations

import hashlib
import hmac
import json

from cluster.metadata import ScramKeys
from holdfast.amqp.framing.sasl import Answer, Challenge, LoginAccepted, LoginDenied, LoginLater
from node.security.principal import Principal
from node.security.scram import Credentials, Refused
from node.security.shared_access import SharedAccess, SharedAccessKeys, SharedAccessRefused
from node.security.tokens import TokenRefused, TokenVerifier

MAX_PASSWORD_BYTES = 1024

RULE = "rule:"
"""Prefix of the name of a client that logged in with a rule's key. No user has such a name."""


class Plain:
    """PLAIN: a user's name and password, or a rule's name and one of its keys."""

    def __init__(self, credentials: Credentials, rules: SharedAccessKeys, refused: Refused) -> None:
        self._credentials = credentials
        self._rules = rules
        self._refused = refused

    def respond(self, data: bytes) -> Answer:
        parts = data.split(b"\0")
        if len(parts) != 3 or len(parts[2]) > MAX_PASSWORD_BYTES:
            return self._deny("", "a malformed message")
        acting_as, name, password = parts
        try:
            user = name.decode()
        except UnicodeDecodeError:
            return self._deny("", "a name that is no text")
        if acting_as not in (b"", name):
            return self._deny(user, "wants to act as another user")
        keys, known = self._credentials.keys(user, "sha256")
        return LoginLater(lambda: self._checked(user, password, keys, known))

    def _checked(self, user: str, password: bytes, keys: ScramKeys, known: bool) -> Answer:
        salted = hashlib.pbkdf2_hmac("sha256", password, keys.salt, keys.iterations)
        stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
        if not hmac.compare_digest(stored, keys.stored_key) or not known:
            right = self._right(user, password)
            if right is not None:
                return LoginAccepted(Principal(RULE + user, "PLAIN", right=right))
            return self._deny(user, "a wrong password" if known else "there is no such user")
        return LoginAccepted(Principal(user, "PLAIN"))

    def _right(self, rule: str, key: bytes) -> SharedAccess | None:
        try:
            return self._rules.by_key(rule, key.decode())
        except (SharedAccessRefused, UnicodeDecodeError):
            return None

    def _deny(self, user: str, why: str) -> LoginDenied:
        self._refused(user, "PLAIN", why)
        return LoginDenied(f"{user!r}, {why}")


class External:
    """EXTERNAL: TLS has verified the certificate; `subject` is its name."""

    def __init__(self, subject: str, refused: Refused) -> None:
        self._subject = subject
        self._refused = refused

    def respond(self, data: bytes) -> Answer:
        if data not in (b"", self._subject.encode()):
            self._refused(self._subject, "EXTERNAL", "wants to act as another user")
            return LoginDenied(f"the certificate of {self._subject!r} is not of whom it wants to act as")
        return LoginAccepted(Principal(self._subject, "EXTERNAL"))


class BearerToken:
    """XOAUTH2 and OAUTHBEARER: they differ in a header, and in how a refusal is explained."""

    def __init__(self, name: str, verifier: TokenVerifier, refused: Refused) -> None:
        self._name = name
        self._verifier = verifier
        self._refused = refused
        self._over: LoginDenied | None = None

    def respond(self, data: bytes) -> Answer:
        if self._over is not None:
            return self._over  # the client has read the reason
        fields = data.split(b"\x01")
        bearer = next((field[5:] for field in fields if field.startswith(b"auth=")), b"")
        kind, _, token = bearer.partition(b" ")
        if kind.lower() != b"bearer" or not token or not token.isascii():
            return self._deny("no bearer token in the message")
        return LoginLater(lambda: self._checked(token.decode()))

    def _checked(self, token: str) -> Answer:
        try:
            return LoginAccepted(self._verifier.verify(token, self._name))
        except TokenRefused as error:
            return self._deny(str(error))

    def _deny(self, why: str) -> Answer:
        self._refused("", self._name, why)
        self._over = LoginDenied(f"its token, {why}")
        status = "invalid_token" if self._name == "OAUTHBEARER" else "401"
        return Challenge(json.dumps({"status": status, "schemes": "bearer"}).encode())
