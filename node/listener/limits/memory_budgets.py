"""Memory that peers make a node hold: a budget for each connection, and accounts of its user and of the node.

The problem: unfinished messages, unsettled deliveries, links with their properties, input that waits for its turn and
output that is not taken are bounded one by one, and a peer may have all of them, on as many connections as it likes.
The rules: everything that a peer can make the node hold is in its connection's budget, and with that in the accounts
of its user and of the node. As long as both have room, a connection has its own limit. Beyond, each has an even share
of the account, and beyond MOST times the account no more than FLOOR_BYTES: a connection that holds nothing yet is still
served, one that holds much is refused first. Accounting costs a subtraction for each piece of input or output, and no
object.
Rejected: ending the connection that holds most. It may be the one honest peer with large messages among many small
hostile ones.
"""

from __future__ import annotations

CONNECTION_BYTES = 24 * 1024 * 1024
"""Budget of one connection: an unfinished message of the largest size that may be configured, or some of the usual one,
and a thousand links; 30,000 unsettled deliveries."""

USER_BYTES = 64 * 1024 * 1024
"""Limit of all connections of one user. Anonymous connections may have what the node has: they are many, and have one
name."""

NODE_BYTES = 128 * 1024 * 1024
"""Limit of all connections of a node: with what else it needs it stays under 400 MiB."""

MOST = 1.5
"""Ratio to the limit from which each connection has only the floor: an even share shrinks as more come, and what was
held before stays held."""

FLOOR_BYTES = 64 * 1024
"""A share so small that thousands of them fit, and large enough for a session, some links and a small message."""


class Account:
    """Bytes held by the connections of a user, or of the node."""

    __slots__ = ("connections", "held", "holders", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.holders = 0
        """Budgets that hold anything."""
        self.connections = 0

    def share(self, usual: int) -> int:
        if self.held < self.limit:
            return usual
        if self.held >= MOST * self.limit:
            return FLOOR_BYTES
        return min(usual, max(FLOOR_BYTES, self.limit // max(1, self.holders)))


class Accounts:
    """The accounts of a node and of its users."""

    def __init__(self, node_bytes: int = NODE_BYTES, user_bytes: int = USER_BYTES) -> None:
        self.node = Account(node_bytes)
        self._user_bytes = user_bytes
        self._users: dict[str, Account] = {}

    def open(self, user: str, *, is_many: bool = False) -> Account:
        account = self._users.get(user)
        if account is None:
            account = self._users[user] = Account(self.node.limit if is_many else self._user_bytes)
        account.connections += 1
        return account

    def close(self, user: str) -> None:
        """Note that a connection of the user has ended."""
        account = self._users[user]
        account.connections -= 1
        if not account.connections:
            del self._users[user]

    @property
    def users(self) -> int:
        return len(self._users)


class Budget:
    """Bytes that one connection holds and may hold."""

    __slots__ = ("_accounts", "_name", "_user", "_usual", "held")

    def __init__(self, accounts: Accounts, usual: int = CONNECTION_BYTES) -> None:
        self.held = 0
        self._accounts = accounts
        self._usual = usual
        self._name: str | None = None
        self._user: Account | None = None

    def belongs_to(self, user: str, *, is_many: bool = False) -> None:
        """Count the connection for its user, too, or for the anonymous ones (`is_many`); until then it counts for the
        node alone."""
        held = self.held
        self.tell(0)
        self._name = user
        self._user = self._accounts.open(user, is_many=is_many)
        self.tell(held)

    def tell(self, held: int) -> None:
        """Set the bytes that the connection holds now."""
        change = held - self.held
        if not change:
            return
        came = (1 if held else 0) - (1 if self.held else 0)
        self.held = held
        node, user = self._accounts.node, self._user
        node.held += change
        node.holders += came
        if user is not None:
            user.held += change
            user.holders += came

    @property
    def limit(self) -> int:
        """Bytes that the connection may hold now."""
        usual = self._accounts.node.share(self._usual)
        return usual if self._user is None else self._user.share(usual)

    def close(self) -> None:
        """Give everything back."""
        self.tell(0)
        if self._name is not None:
            self._accounts.close(self._name)
            self._name = self._user = None
