"""Admission of peers: which nodes may talk to this node.

The rule: nothing of a foreign cluster, a misdirected connection, another protocol version, a node that is no member or
was removed, or one whose data are not those it was registered with is ever handled; the refusal says whose fault it is,
what to change, and where: in this node's log, and to callers with a node's certificate (`refusal_log`). It is a check
of configurations and directories, not of credentials.

Who the members are, the metadata say; `cluster.peers` only says where to begin. A cluster that is not begun yet has no
metadata: there the lists are compared, since all of them must name the same founders.

A data directory has an *incarnation*, drawn when it was made. What a node with an empty directory under an old id says
would be taken for the word of one that remembers; so peers compare the incarnation with the one the cluster knows, and
each side says which one it expects of the other. A copy of a directory has the incarnation of the original; it is known
by the count and marks of its starts (`cluster/stale_copy_detection.py`), and refused in the same way.

The cluster can take a new incarnation for an old one only by a decision of its majority. Of *two* nodes that majority
is the very pair: so while an operator has the remaining node let the other one in, that node goes by the operator's
word before it is decided (`admitted`). It is the one that remembers, and part of every majority; the other one comes
without a vote (`cluster/raft/elections/vote_recovery.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from google.protobuf.message import DecodeError

from cluster.rpc.call_validation import parsed
from cluster.rpc.peer_boot_counters import PeerBootCounters, ProcessMemory, Starts, nothing_registered, start_of
from cluster.rpc.peer_tls import NOT_A_NODE, PeerTls
from cluster.rpc.refusal_log import Refusals
from cluster.rpc.rpc_pb2 import Hello
from cluster.rpc.shared_port import caller_at
from cluster.stale_copy_detection import DirectoryStart, KnownStart
from cluster.versions import MEMBERS_CHANGE_FROM, OURS, UNSET, VersionRange, mismatch

METADATA_KEY = "holdfast-hello-bin"

STILL_HEARD = (
    "another process of node {node} is still heard here: one that was just restarted is let in as soon as the old "
    "connection has ended; if both run, one of them works on a copy of the data: stop it"
)


def hello_to(dialled: int, *, cluster: str, self_id: int, versions: VersionRange = OURS, active: int = UNSET) -> Hello:
    return Hello(
        cluster=cluster,
        node=self_id,
        dialled=dialled,
        protocol=active,
        oldest=versions.oldest,
        newest=versions.newest,
    )


def _unknown(_: int) -> int:
    return 0


def _not_new() -> bool:
    return False


def _unset() -> int:
    return UNSET


def _nobody() -> Collection[int]:
    return ()


def _not_removed(_: int) -> tuple[int, ...] | None:
    return None


def _ignored(_: int) -> None:
    """No-op for a node without versions of its own, in tests."""


@dataclass
class Who:
    """The node, as it presents itself, and as it judges others."""

    cluster: str
    node: int
    known: frozenset[int]
    """Ids of its peers. Replaced when they change."""
    incarnation: int = 0
    """Incarnation of its data directory. 0: it has none, in tests, and is not compared."""
    members: tuple[int, ...] = ()
    """Nodes with which the cluster began, as this node was told; none: it joined."""
    registered: Callable[[int], int] = _unknown
    """Returns the incarnation that the cluster has of a node; 0 if it is not registered, as far as is known here."""
    is_new: Callable[[], bool] = _not_new
    """True while this node has no memory of the cluster at all."""
    start: DirectoryStart = field(default_factory=DirectoryStart)
    """Start of the directory by this process. Set before anything is said."""
    registered_start: Callable[[int], KnownStart] = nothing_registered
    memory: PeerBootCounters = field(default_factory=ProcessMemory)
    strangers: dict[int, int] = field(default_factory=dict)
    """Incarnation that was refused last and is not let in yet, by node: see `stranger`."""
    admitted: dict[int, int] = field(default_factory=dict)
    """Incarnation to go by while it is being decided on, by node."""
    copies: dict[int, int] = field(default_factory=dict)
    """Incarnation of a copy that a node came with, by node, while that node was not let in since."""
    tls: PeerTls | None = None
    """Certificates by which callers prove which node they are; None: they prove nothing."""
    refusals: Refusals = field(default_factory=Refusals)
    versions: VersionRange = OURS
    active: Callable[[], int] = _unset
    """Returns the cluster's active version, as far as is known here."""
    on_active: Callable[[int], None] = _ignored
    """Called with the active version of a caller that is let in, before anything that it says is looked at."""
    announced: Callable[[], Collection[int]] = _nobody
    """Returns the nodes that were announced and have not registered: they may ask, and have no streams yet."""
    removed: Callable[[int], tuple[int, ...] | None] = _not_removed
    """Returns the incarnations of a node that was removed; None: it was not."""
    cluster_id: Callable[[], int] = _unset
    """Returns the identity of the cluster; 0: it is not known."""

    def __post_init__(self) -> None:
        self.starts = Starts(self.memory, lambda node: self.registered(node), lambda node: self.registered_start(node))

    def is_node(self, context: Any, hello: Hello | None) -> bool:
        """True if the call comes from the node that it says; asked before anything else of the caller is looked at."""
        return self.tls is None or (hello is not None and self.tls.is_node(context, hello.node))

    def told(self, context: Any, hello: Hello | None, reason: str) -> str:
        """Log the reason for which a caller is not let in, and return the part of it that the caller hears."""
        proven = self.tls is not None and self.is_node(context, hello)
        return self.refusals.told(reason, caller_at(context.peer()), proven=proven)

    def not_a_node(self, context: Any, hello: Hello | None) -> str:
        """Return what the caller hears where `is_node` refuses it."""
        return f"{NOT_A_NODE}: {self.told(context, hello, self.mismatch(context, hello))}"

    def mismatch(self, context: Any, hello: Hello | None) -> str:
        """Reason why `is_node` refuses the caller."""
        said = "nothing" if hello is None else f"that it is node {hello.node}"
        shown = self.tls.shown(context) if self.tls is not None else "none"
        return f"the caller says {said}, and its certificate names {shown}: it is not that node's of this cluster"

    def expected(self, node: int) -> int:
        return self.admitted.get(node) or self.registered(node)

    def hello_to(self, dialled: int) -> Hello:
        hello = hello_to(dialled, cluster=self.cluster, self_id=self.node, versions=self.versions, active=self.active())
        hello.incarnation, hello.expected = self.incarnation, self.expected(dialled)
        hello.members.extend(self.members)
        hello.is_new = self.is_new()
        hello.boot = self.start.boot
        hello.marks.extend(self.start.marks)
        if self.active() >= MEMBERS_CHANGE_FROM:
            hello.cluster_id = self.cluster_id()
        return hello

    def refusal(self, hello: Hello | None) -> str | None:
        """Why the caller is not let in; None: welcome."""
        reason = refusal(
            hello,
            cluster=self.cluster,
            self_id=self.node,
            known=self.known | frozenset(self.announced()),
            versions=self.versions,
            active=self.active(),
        )
        fault = None if hello is None else self._membership_fault(hello)
        if fault is not None or reason is not None or hello is None:
            return fault or reason
        if self.is_stranger(hello.node, hello.incarnation):
            self.strangers[hello.node] = hello.incarnation
            return _replaced(hello.node, hello.incarnation, self.expected(hello.node))
        if hello.expected and self.incarnation and hello.expected != self.incarnation:
            return _replaced(self.node, self.incarnation, hello.expected)
        if (fault := self.copy_fault(hello)) is not None:
            self.copies[hello.node] = hello.incarnation
            return _copied(hello.node, fault)
        self.on_active(hello.protocol)
        return None

    def _membership_fault(self, hello: Hello) -> str | None:
        """Why the caller is no member of this cluster, where more can be said than that it is not known."""
        if (hello.cluster, hello.dialled) != (self.cluster, self.node):
            return None
        ours = self.cluster_id()
        if hello.cluster_id and ours and hello.cluster_id != ours:
            return (
                f"node {hello.node} has data of another cluster that is called {self.cluster!r}, too "
                f"({hello.cluster_id:016x}, this one is {ours:016x}): correct its data_dir or cluster.peers"
            )
        if self.removed(hello.node) is not None:
            return (
                f"node {hello.node} was removed from the cluster, for good: start it with an empty data_dir and "
                "another node.id, which `holdfast node add` announces"
            )
        if self.active() < MEMBERS_CHANGE_FROM:
            return self._other_founders(hello)
        if hello.node in self.announced() and hello.members:
            return (
                f"node {hello.node} is announced, but is configured to begin a cluster of the nodes "
                f"{_listed(hello.members)}: write cluster.join = true into its configuration"
            )
        return None

    def _other_founders(self, hello: Hello) -> str | None:
        if not hello.members or not self.members or tuple(hello.members) == self.members:
            return None
        theirs, ours = _listed(hello.members), _listed(self.members)
        return (
            f"node {hello.node} is configured with the nodes {theirs} and node {self.node} with {ours}: one of the "
            "two has an old or wrong configuration; write the same cluster.peers into both"
        )

    def is_told_removed(self, hello: Hello) -> bool:
        """True if the caller was removed, with the very data that it has: no later start of them helps. If so, all else
        that it says is right, the 64 drawn bits of its incarnation as well."""
        return hello.cluster == self.cluster and hello.incarnation in (self.removed(hello.node) or ())

    def copy_fault(self, hello: Hello) -> str | None:
        return self.starts.fault(hello.node, hello.incarnation, start_of(hello))

    def refused_copy(self, hello: Hello, reason: str) -> str | None:
        """Say in what the caller's data are a copy, if that is why it was refused; else None, and the caller is not
        told. If it is, all else that the caller says is right, the 64 drawn bits of its incarnation as well."""
        fault = self.copy_fault(hello)
        return fault if fault is not None and reason == _copied(hello.node, fault) else None

    def has_only_to_join(self, hello: Hello) -> bool:
        """True if the caller is announced and no member yet: it may join, and do nothing else."""
        return hello.node in self.announced() and hello.node not in self.known

    def has_to_wait(self, hello: Hello) -> str | None:
        """Reason why the caller has to wait, although it may belong here; None: it has not."""
        return STILL_HEARD.format(node=hello.node) if self.starts.is_beside(hello.node, start_of(hello)) else None

    def stranger(self, node: int) -> int | None:
        """Incarnation that an operator may let in: refused here, and other than the one that the cluster knows. An
        incarnation that was let in meanwhile is no answer to an operator that asks for the next one."""
        incarnation = self.strangers.get(node, 0)
        return incarnation if self.is_stranger(node, incarnation) else None

    def is_refused(self, node: int) -> bool:
        """True if the node came with other data than the cluster knows, or with a copy of those that the cluster knows
        still, and was not let in here since."""
        if self.stranger(node) is not None:
            return True
        return node in self.copies and not self.is_stranger(node, self.copies[node])

    async def welcome(self, hello: Hello) -> None:
        """Remember, on disk, that this start was here."""
        self.strangers.pop(hello.node, None)  # an older disk than that of now
        await self.starts.welcome(hello.node, hello.incarnation, start_of(hello))

    def is_stranger(self, node: int, incarnation: int) -> bool:
        expected = self.expected(node)
        return bool(expected and incarnation) and incarnation != expected


def _replaced(node: int, incarnation: int, registered: int) -> str:
    return (
        f"node {node} comes with other data (incarnation {incarnation:016x}) than the cluster knows it by "
        f"({registered:016x}): it was started with an empty or a wrong data_dir. Start it with its own data. Only if "
        "those are lost for good: leave it running, and let it in as an empty replica with "
        f"`holdfast node readmit {node}`"
    )


def _copied(node: int, fault: str) -> str:
    return (
        f"node {node} does not come with the latest of its data: {fault}. It has forgotten what the node promised "
        "since. Start it with its original data. Only if those are lost for good: start it with an empty data_dir, and "
        f"let it in with `holdfast node readmit {node}`"
    )


def _listed(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(nodes)))


def hello_in(metadata: Iterable[tuple[str, str | bytes]] | None) -> Hello | None:
    """The Hello that a call carries, or None when there is none that can be read."""
    for key, value in metadata or ():
        if key == METADATA_KEY and isinstance(value, bytes):
            try:
                return cast(Hello, parsed(Hello, value))
            except DecodeError:
                return None
    return None


def version_range_of(hello: Hello) -> VersionRange:
    """The versions that the dialler's program knows. One from before there were ranges knows its own alone."""
    return VersionRange(hello.oldest, hello.newest) if hello.newest else VersionRange(hello.protocol, hello.protocol)


def refusal(
    hello: Hello | None,
    *,
    cluster: str,
    self_id: int,
    known: Collection[int],
    versions: VersionRange = OURS,
    active: int = UNSET,
) -> str | None:
    """Why the caller is not let in; None: welcome. `versions`, `active`: of this node."""
    if hello is None:
        return f"node {self_id} of cluster {cluster!r} was called without a Hello: the caller is not a Holdfast node"
    who = f"node {hello.node} of cluster {hello.cluster!r}"
    theirs = version_range_of(hello)
    why = mismatch(versions, active, theirs, hello.protocol if hello.newest else UNSET)
    if why is not None:
        return f"{who} ({theirs}) and node {self_id} ({versions}) do not understand each other: {why}"
    if hello.cluster != cluster:
        return (
            f"{who} dialled node {self_id} of cluster {cluster!r}: the caller's configuration has the wrong address "
            "for one of its peers, or one of the two has the wrong cluster name"
        )
    if hello.dialled != self_id:
        return (
            f"{who} took this for node {hello.dialled}, but it is node {self_id}: correct the address of node "
            f"{hello.dialled} in cluster.peers of node {hello.node}"
        )
    if hello.node == self_id:
        return f"two processes call themselves node {self_id} of cluster {cluster!r}: stop one, or change its node.id"
    if hello.node not in known and active >= MEMBERS_CHANGE_FROM:
        return f"{who} is not announced: type `holdfast node add {hello.node}` at the cluster, or stop it"
    if hello.node not in known:
        listed = _listed(known)
        return (
            f"{who} is not among the peers that node {self_id} was configured with ({listed}): "
            f"add it to cluster.peers of node {self_id}, or stop it"
        )
    return None
