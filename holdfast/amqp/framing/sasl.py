"""SASL mechanisms as the engine sees them: steps without IO, on either side.

Problem: some mechanisms take several messages, and some take milliseconds of hashing or a look elsewhere, for which the
loop of a thousand connections must not wait.
Rule never broken: a step does no IO and no hashing; it hands such work out as `LoginLater`, and the owner of the
engine runs it off the loop and brings the answer back (`Engine.authenticated`). Until then nothing that the peer sends
is looked at. Rejected: coroutines inside the engine; it has neither loop nor clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

AUTH, SYS_TEMP = 1, 4
"""Codes of a SASL outcome: the credentials are wrong; the server cannot tell now."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """The client is to answer this."""

    data: bytes


@dataclass(frozen=True, slots=True)
class LoginAccepted:
    identity: object


@dataclass(frozen=True, slots=True)
class LoginDenied:
    """The login failed: `why` is for the server's own log; the client hears the code only."""

    why: str
    code: int = AUTH


@dataclass(frozen=True, slots=True)
class LoginLater:
    """The answer takes a while: run `work` in a thread, which returns it."""

    work: Callable[[], object]


Answer = Challenge | LoginAccepted | LoginDenied | LoginLater


class ServerExchange(Protocol):
    """One login. The initial response comes first; absent is empty."""

    def respond(self, data: bytes) -> Answer: ...


Mechanism = Callable[[], ServerExchange]
"""Begins an exchange."""


class ClientExchange(Protocol):
    """One login from the client's side. Each step answers bytes, or `LoginLater`, whose work returns them; raises
    ValueError when the server is not to be trusted, or the credentials cannot be used."""

    name: str

    def first(self) -> bytes | LoginLater: ...
    def respond(self, challenge: bytes) -> bytes | LoginLater: ...
    def succeeded(self, additional: bytes) -> None:
        """The server says that all is well; raises ValueError if it has not proved itself."""
        ...


Login = Callable[[Sequence[str]], ClientExchange]
"""Chooses among the mechanisms that a server offers; raises ValueError when none will do."""


class OneStep:
    """A mechanism of a single message: `check` tells the identity, or None."""

    def __init__(self, check: Callable[[bytes], object]) -> None:
        self._check = check

    def respond(self, data: bytes) -> Answer:
        identity = self._check(data)
        return LoginDenied("the credentials are wrong") if identity is None else LoginAccepted(identity)


class FixedLogin:
    """One mechanism and its one message, both known beforehand."""

    def __init__(self, name: str, response: bytes) -> None:
        self.name = name
        self._response = response

    def __call__(self, offered: Sequence[str]) -> ClientExchange:
        if self.name not in offered:
            raise ValueError(f"the server offers {', '.join(offered) or 'nothing'}, not SASL {self.name}")
        return self

    def first(self) -> bytes | LoginLater:
        return self._response

    def respond(self, challenge: bytes) -> bytes | LoginLater:
        raise ValueError(f"SASL {self.name} has one message, and the server asks for more")

    def succeeded(self, additional: bytes) -> None:
        """Accept: with one message there is nothing that the server could have proved."""
