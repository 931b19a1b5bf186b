"""States of one group and of the metadata's wish, and all that can happen next.

What a leader of a term has sent stays under way: any part of its log, from the start, may arrive at any time at the
replica that it was meant for. Votes and acknowledgements are sets that only grow. So loss, repetition and reordering of
messages are all in. The metadata are a log that each node follows at its own pace; leaders report in any order.

What decides about members is the production code: `next_step`, `Quorum`, `VoteRecovery`, and the steps of a
configuration. Left out, since they only forbid or only take time: pre-votes, loyalty, snapshots, transfers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from cluster.raft.membership.changes import AppendConfiguration, LeaderView, MoveEnded, Wish, next_step
from cluster.raft.membership.configuration import FOUNDING_BIRTH, Configuration, Replica, final
from cluster.raft.membership.quorum import Quorum
from tests.simulation.membership_model.recovery import ModelMembers, ModelMute, ModelRecovery, ModelRelease


class Broken(Exception):
    """Something happened that must not."""


class ModelEntry(NamedTuple):
    term: int
    what: Configuration | str


Log = tuple[ModelEntry, ...]


class ModelMember(NamedTuple):
    """What a node has of the group. With birth 0 it has nothing."""

    birth: int = 0
    mute: bool = False
    life: int = 0
    """Mark of its life: another one since each loss of its disk."""
    term: int = 0
    vote: Replica | None = None
    log: Log = ()
    commit: int = 0
    """As far as it heard of. Kept where a rule asks for it only (`configuration-at-apply`)."""
    hint: Configuration | None = None
    """In force where the log has no configuration."""
    over: int = 0
    """Births up to this one are over here."""
    seen: int = 0
    """Commands of the metadata that the node has applied."""


class Leadership(NamedTuple):
    leader: Replica
    log: Log
    commit: int = 0
    mutes: frozenset[ModelMute] = frozenset()


class Candidacy(NamedTuple):
    term: int
    candidate: Replica
    last: tuple[int, int]
    voters: frozenset[Replica]
    """Old and new ones, in the candidate's configuration."""
    life: int


class ToldEnd(NamedTuple):
    configuration: Configuration
    cancelled: bool


class State(NamedTuple):
    members: tuple[ModelMember, ...]
    """Of nodes 1, 2, ..."""
    led: tuple[Leadership | None, ...]
    """By term, from 1 on."""
    asked: frozenset[Candidacy]
    votes: frozenset[tuple[int, Replica, Replica, int]]
    """Term, candidate, voter, life of the candidate."""
    acks: frozenset[tuple[int, Replica, int]]
    """Term, replica, index: the highest only."""
    releases: frozenset[ModelRelease]
    metadata: tuple[Wish | str | ToldEnd, ...]
    committed: tuple[tuple[ModelEntry, int], ...]
    """Entries, with the term in which some leader first committed them."""
    entries: int
    losses: int


@dataclass(frozen=True)
class Scope:
    """Bounds of a search, and the rules that it leaves out."""

    start: Configuration
    wishes: tuple[Wish, ...]
    """One after the other."""
    nodes: int
    recovers: bool = False
    """Whether votes come back."""
    terms: int = 2
    entries: int = 0
    losses: int = 0
    loses: frozenset[int] = frozenset()
    """Nodes whose disk may be lost."""
    cancels: bool = False
    without: str = ""
    """A rule that does not hold: `mutations`."""

    def lacks(self, rule: str) -> bool:
        return self.without == rule

    def begun(self) -> tuple[MembershipModel, State]:
        return MembershipModel(self), first_state(self)


def first_state(scope: Scope) -> State:
    births = {replica.node: replica.birth for replica in scope.start.voters}
    members = tuple(
        ModelMember(births[node], hint=scope.start) if node in births else ModelMember()
        for node in range(1, scope.nodes + 1)
    )
    return State(
        members, (None,) * scope.terms, frozenset(), frozenset(), frozenset(), frozenset(),
        scope.wishes[:1], (), scope.entries, scope.losses,
    )  # fmt: skip


@cache
def quorum_of(configuration: Configuration | None) -> Quorum:
    return Quorum(configuration)


class MembershipModel:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    # ---- what a member knows

    def configuration(self, member: ModelMember, log: Log, commit: int) -> Configuration | None:
        """The one in force: the latest in the log, committed or not."""
        end = commit if self.scope.lacks("in force at the append") else len(log)
        for entry in reversed(log[:end]):
            if isinstance(entry.what, Configuration):
                return entry.what
        return member.hint

    def _is_reached(self, configuration: Configuration | None, by: set[Replica]) -> bool:
        if configuration is None:
            return False
        counted = by if self.scope.lacks("births in votes") else by & configuration.all_voters
        nodes = {replica.node for replica in counted}
        if self.scope.lacks("learners do not count"):
            learners = len({replica.node for replica in by & configuration.learners})
            sets = [one for one in (configuration.voters, configuration.outgoing) if one]
            return all(2 * (len(nodes & {r.node for r in one}) + learners) > len(one) for one in sets)
        return quorum_of(configuration).is_reached(nodes)

    # ---- all that can happen

    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        for node in range(1, self.scope.nodes + 1):
            yield from self._campaign(state, node)
            yield from self._grant(state, node)
            yield from self._receive(state, node)
            yield from self._answer(state, node)
            yield from self._learn(state, node)
            yield from self._lose(state, node)
        for term in range(1, self.scope.terms + 1):
            yield from self._win(state, term)
            yield from self._commit(state, term)
            yield from self._append(state, term)
        yield from self._operate(state)

    # ---- elections

    def _campaign(self, state: State, node: int) -> Iterator[tuple[str, State]]:
        member = state.members[node - 1]
        own, term = Replica(node, member.birth), member.term + 1
        known = self.configuration(member, member.log, member.commit)
        if not member.birth or not self._may_lead(member) or known is None or term > self.scope.terms:
            return
        if own not in known.all_voters:
            return
        asked = Candidacy(term, own, _last(member.log), known.all_voters, member.life)
        changed = _with(state, node, member._replace(term=term, vote=own))
        yield f"{own} campaigns in term {term}", changed._replace(asked=state.asked | {asked})

    def _grant(self, state: State, node: int) -> Iterator[tuple[str, State]]:
        member = state.members[node - 1]
        own = Replica(node, member.birth)
        for asked in state.asked:
            if not member.birth or asked.candidate.node == node or asked.term < member.term:
                continue
            free = asked.term > member.term or member.vote in (None, asked.candidate)
            meant = own in asked.voters or (self.scope.lacks("births in votes") and node in _nodes(asked.voters))
            if not free or not meant or not self._may_grant(state, member, own, asked):
                continue
            vote = (asked.term, asked.candidate, own, asked.life)
            if vote not in state.votes:
                changed = _with(state, node, member._replace(term=asked.term, vote=asked.candidate))
                yield f"{own} votes for {asked.candidate} in {asked.term}", changed._replace(votes=state.votes | {vote})

    def _may_grant(self, state: State, member: ModelMember, own: Replica, asked: Candidacy) -> bool:
        """A member without a memory votes for a candidate that all others vote for, and compares no logs."""
        if not member.mute:
            return asked.last >= _last(member.log)
        if self.scope.lacks("the asker's word"):
            return member.hint is not None and _nodes(member.hint.all_voters) == {own.node, asked.candidate.node}
        others = asked.voters - {own, asked.candidate}
        if self.scope.lacks("nor do two of them"):
            others -= {Replica(one, known.birth) for one, known in enumerate(state.members, 1) if known.mute}
        if self.scope.lacks("the votes of all others"):
            return own in asked.voters
        return all((asked.term, asked.candidate, other, asked.life) in state.votes for other in others)

    def _win(self, state: State, term: int) -> Iterator[tuple[str, State]]:
        for asked in state.asked:
            own = asked.candidate
            member = state.members[own.node - 1]
            led = state.led[term - 1]
            stands = (member.term, member.vote, member.birth) == (term, own, own.birth) and self._may_lead(member)
            if asked.term != term or not stands or (led is not None and led.leader == own):
                continue
            if (_last(member.log), member.life) != (asked.last, asked.life):
                continue
            any_life = self.scope.lacks("a vote is for one life of the candidate")
            voters = {
                voter
                for at, candidate, voter, life in state.votes
                if (at, candidate) == (term, own) and (life == member.life or any_life)
            }
            if not self._is_reached(self.configuration(member, member.log, member.commit), voters | {own}):
                continue
            if led is not None:
                raise Broken(f"{led.leader} and {own} both lead term {term}")
            for index, (entry, committed_in) in enumerate(state.committed):
                if committed_in < term and member.log[index : index + 1] != (entry,):
                    raise Broken(f"{own} leads term {term} without entry {index + 1}, committed in {committed_in}")
            log = (*member.log, ModelEntry(term, "no-op"))
            yield f"{own} leads term {term}", self._led(state, term, Leadership(own, log))

    def _led(self, state: State, term: int, led: Leadership) -> State:
        node = led.leader.node
        commit = led.commit if self.scope.lacks("in force at the append") else 0
        changed = _with(state, node, state.members[node - 1]._replace(log=led.log, commit=commit))
        return changed._replace(led=(*state.led[: term - 1], led, *state.led[term:]))

    def _leads(self, state: State, term: int) -> Leadership | None:
        """The leadership of a term, while it lasts."""
        led = state.led[term - 1]
        member = state.members[led.leader.node - 1] if led is not None else None
        lasts = led is not None and member is not None and (member.term, member.birth) == (term, led.leader.birth)
        return led if lasts and member is not None and self._may_lead(member) else None

    def _may_lead(self, member: ModelMember) -> bool:
        return not member.mute or self.scope.lacks("who has no memory leads nothing")

    # ---- entries

    def _receive(self, state: State, node: int) -> Iterator[tuple[str, State]]:
        member = state.members[node - 1]
        own = Replica(node, member.birth)
        for term in range(max(1, member.term), self.scope.terms + 1):
            led = state.led[term - 1]
            if led is None or not member.birth or led.leader.node == node:
                continue
            for end in range(self._sent_to(own, led) + 1):
                sent = led.log[:end]
                log = member.log if member.log[:end] == sent else sent
                if log == sent and member.commit > len(log):
                    raise Broken(f"{own} drops what it knows to be committed")
                vote = member.vote if term == member.term else None
                after = member._replace(term=term, vote=vote, log=log)
                acks = self._acked(state, term, own, end)
                yield f"{own} has {end} entries of term {term}", _with(state, node, after)._replace(acks=acks)
                if any(self._releases(release, after, own, end) for release in state.releases):
                    counted = led.leader if not self.scope.lacks("it counts as having voted") else None
                    votes = _with(state, node, after._replace(mute=False, vote=vote or counted))
                    acks = self._acked(votes, term, own, end)
                    yield f"{own} votes again, with {end} of term {term}", votes._replace(acks=acks)
                if self.scope.lacks("in force at the append"):
                    heard = after._replace(commit=max(member.commit, min(end, led.commit)))
                    yield f"{own} applies {end} of term {term}", _with(state, node, heard)._replace(acks=acks)

    def _sent_to(self, own: Replica, led: Leadership) -> int:
        """Entries of that leader which a replica is ever sent: nothing from a configuration on that has no place for
        it; and who does not vote in the latest one gets that when it is committed."""
        if self.scope.lacks("births in acks") and own.node in _nodes(frozenset(self._ever(led.log))):
            return len(led.log)
        end, has_place = 0, own in self.scope.start.replicas
        for index, entry in enumerate(led.log, 1):
            if isinstance(entry.what, Configuration):
                had_place, has_place = has_place, own in entry.what.replicas
                too_early = index > led.commit and own not in entry.what.all_voters
                if (had_place and not has_place) or (has_place and too_early):
                    return end
            end = index if has_place else 0
        return end

    def _ever(self, log: Log) -> set[Replica]:
        found = set(self.scope.start.replicas)
        for entry in log:
            if isinstance(entry.what, Configuration):
                found |= entry.what.replicas
        return found

    def _acked(self, state: State, term: int, own: Replica, end: int) -> frozenset[tuple[int, Replica, int]]:
        if state.members[own.node - 1].mute and not self.scope.lacks("it confirms nothing"):
            return state.acks
        best = max((index for at, who, index in state.acks if (at, who) == (term, own)), default=0)
        if end <= best:
            return state.acks
        return (state.acks - {(term, own, best)}) | {(term, own, end)}

    def _commit(self, state: State, term: int) -> Iterator[tuple[str, State]]:
        led = self._leads(state, term)
        if led is None:
            return
        known = self.configuration(state.members[led.leader.node - 1], led.log, led.commit)
        for index in range(len(led.log), led.commit, -1):
            holders = {who for at, who, end in state.acks if at == term and end >= index} | {led.leader}
            if self.scope.lacks("births in acks") and known is not None:
                births = {replica.node: replica for replica in known.all_voters}
                holders = {births.get(who.node, who) for who in holders}
            if led.log[index - 1].term == term and self._is_reached(known, holders):
                committed = self._committed(state, led, index, term)
                changed = self._led(committed, term, led._replace(commit=index))
                yield f"term {term} commits {index}", self._told_to_vote(changed, term)
                return

    @staticmethod
    def _committed(state: State, led: Leadership, index: int, term: int) -> State:
        for place, ((entry, _), own) in enumerate(zip(state.committed, led.log[:index], strict=False), 1):
            if entry != own:
                raise Broken(f"term {term} commits {own} at {place}, where {entry} was committed")
        more = tuple((entry, term) for entry in led.log[len(state.committed) : index])
        return state._replace(committed=state.committed + more)

    def _append(self, state: State, term: int) -> Iterator[tuple[str, State]]:
        led = self._leads(state, term)
        if led is None:
            return
        if state.entries:
            log = (*led.log, ModelEntry(term, "data"))
            changed = self._led(state, term, led._replace(log=log))
            yield f"term {term} appends an entry", changed._replace(entries=state.entries - 1)
        member = state.members[led.leader.node - 1]
        latest = self.configuration(member, led.log, len(led.log))
        wish = _wish(state.metadata[: member.seen])
        if latest is None or (wish is None and not latest.is_joint):
            return
        if self._finishes_early(wish, latest):
            yield from self._report(state, term, latest, cancelled=wish is not None and not _is_done(wish, latest))
            return
        everybody = set(range(1, self.scope.nodes + 1))
        view = LeaderView(led.leader.node, self._may_append(led, term), everybody)
        step = next_step(wish, latest, view)
        if isinstance(step, AppendConfiguration):
            log = (*led.log, ModelEntry(term, step.configuration))
            changed = led._replace(log=log)
            recovery = self._recovery(state, changed)
            recovery.members_changed()
            changed = changed._replace(mutes=recovery.mutes)
            yield f"term {term} appends {step.configuration}", self._led(state, term, changed)
        elif isinstance(step, MoveEnded) and wish is not None:
            yield from self._report(state, term, latest, cancelled=not _is_done(wish, latest))

    def _finishes_early(self, wish: Wish | None, latest: Configuration) -> bool:
        if self.scope.lacks("a cancel is an entry"):
            return wish is not None and wish.is_cancelled and not latest.move and latest.ended < wish.move
        return self.scope.lacks("finished when F is committed") and latest.is_joint

    def _may_append(self, led: Leadership, term: int) -> bool:
        own_term = led.commit > 0 and led.log[led.commit - 1].term == term
        last = max((index for index, entry in enumerate(led.log, 1) if not isinstance(entry.what, str)), default=0)
        return (own_term or self.scope.lacks("an entry of the own term first")) and (
            last <= led.commit or self.scope.lacks("one change at a time")
        )

    # ---- votes that come back

    def _recovery(self, state: State, led: Leadership) -> ModelRecovery:
        member = state.members[led.leader.node - 1]
        latest = self.configuration(member, led.log, led.commit)
        assert latest is not None
        last = max((index for index, entry in enumerate(led.log, 1) if not isinstance(entry.what, str)), default=0)
        is_committed = last <= led.commit or self.scope.lacks("a commit of its own first")
        return ModelRecovery(ModelMembers(led.leader.node, latest, is_committed), led.mutes)

    def _answer(self, state: State, node: int) -> Iterator[tuple[str, State]]:
        """An append that is sent now is answered, whether the logs join or not."""
        member = state.members[node - 1]
        own = Replica(node, member.birth)
        for term in range(max(1, member.term), self.scope.terms + 1):
            led = self._leads(state, term)
            if led is None or not self.scope.recovers or led.leader.node == node or not (led.mutes or member.mute):
                continue
            recovery = self._recovery(state, led)
            if own not in recovery.replicas:
                continue
            after = member._replace(term=term, vote=member.vote if term == member.term else None)
            is_lost = recovery.heard(node, member.life if member.mute else 0)
            if self.scope.lacks("answers of all others"):
                recovery.waits_for_none_of(set(range(1, self.scope.nodes + 1)))
            elif self.scope.lacks("of all others, not of a majority"):
                recovery.waits_for_a_majority()
            elif self.scope.lacks("answers to what was sent since"):
                recovery.waits_for_none_of({who.node for at, who, _ in state.acks if at == term})
            changed = _with(state, node, after)
            if is_lost and not self.scope.lacks("what it confirmed before is void"):
                changed = changed._replace(acks=frozenset(ack for ack in state.acks if ack[:2] != (term, own)))
            changed = self._led(changed, term, led._replace(mutes=recovery.mutes))
            yield f"{own} answers in term {term}", self._told_to_vote(changed, term)

    def _told_to_vote(self, state: State, term: int) -> State:
        """A leader tells a member as soon as it may: later it would ask for no less."""
        led = state.led[term - 1]
        if led is None or not led.mutes:
            return state
        recovery = self._recovery(state, led)
        own_from = next(index for index, entry in enumerate(led.log, 1) if entry.term == term)
        releases = set(state.releases)
        at_once = self.scope.lacks("a commit of its own first")
        for mute in led.mutes:
            told = recovery.release(mute.replica.node, max(led.commit, own_from) if at_once else led.commit, own_from)
            if told is not None:
                releases.add(ModelRelease(term, mute.replica, told[1], told[0]))
        changed = state._replace(releases=frozenset(releases))
        return self._led(changed, term, led._replace(mutes=recovery.mutes))

    def _releases(self, release: ModelRelease, member: ModelMember, own: Replica, end: int) -> bool:
        if not member.mute or (release.term, release.replica) != (member.term, own):
            return False
        is_this_life = release.mark == member.life or self.scope.lacks("a release is for one life")
        return is_this_life and (end >= release.index or self.scope.lacks("it has everything up to there"))

    # ---- the metadata

    def _report(
        self, state: State, term: int, latest: Configuration, *, cancelled: bool
    ) -> Iterator[tuple[str, State]]:
        known = [one for one in state.metadata if isinstance(one, ToldEnd)]
        if all(one.configuration.version < latest.version for one in known) or (
            not known and self.scope.lacks("a cancel is an entry")
        ):
            reported = final(latest) if latest.is_joint else latest
            told = ToldEnd(reported, cancelled)
            yield f"term {term} reports {latest}", state._replace(metadata=(*state.metadata, told))

    def _operate(self, state: State) -> Iterator[tuple[str, State]]:
        begun = [one for one in state.metadata if isinstance(one, Wish)]
        finished = [one for one in state.metadata if isinstance(one, ToldEnd)]
        self._check_told(state, finished)
        if self.scope.cancels and "cancel" not in state.metadata and not finished:
            yield "somebody cancels", state._replace(metadata=(*state.metadata, "cancel"))
        if len(begun) < len(self.scope.wishes) and len(finished) >= len(begun):
            wish = self.scope.wishes[len(begun)]
            version = max(one.configuration.version for one in finished)
            yield f"move {wish.move} begins", state._replace(metadata=(*state.metadata, replace(wish, version=version)))

    def _check_told(self, state: State, finished: list[ToldEnd]) -> None:
        for one in finished:
            moved = any(isinstance(e.what, Configuration) and e.what.is_joint for e, _ in state.committed)
            if one.cancelled and moved and len(self.scope.wishes) == 1:
                raise Broken("the move was called cancelled, and was carried out")

    def _learn(self, state: State, node: int) -> Iterator[tuple[str, State]]:
        member = state.members[node - 1]
        if member.seen == len(state.metadata):
            return
        command = state.metadata[member.seen]
        after = member._replace(seen=member.seen + 1)
        if isinstance(command, Wish):
            after = self._opened(after, node, command)
            if self.scope.lacks("erased when the move is finished") and command.gone == Replica(node, member.birth):
                after = self._erased(state, after, node)
        elif isinstance(command, ToldEnd) and member.birth:
            own, latest = Replica(node, member.birth), self.configuration(member, member.log, len(member.log))
            newer = latest is None or command.configuration.version > latest.version
            wanted = _wish(state.metadata[: after.seen])
            moving = wanted is not None and wanted.voter == own
            if own not in command.configuration.replicas and newer and not moving:
                after = self._erased(state, after, node)
        yield f"node {node} learns of {_told(command)}", _with(state, node, after)

    def _opened(self, member: ModelMember, node: int, wish: Wish) -> ModelMember:
        if wish.voter is None or wish.voter.node != node or member.birth or wish.voter.birth <= member.over:
            return member
        return member._replace(birth=wish.voter.birth)

    def _erased(self, state: State, member: ModelMember, node: int) -> ModelMember:
        own = Replica(node, member.birth)
        present = [e.what for e, _ in state.committed if isinstance(e.what, Configuration)]
        latest = present[-1] if present else self.scope.start
        if own in latest.all_voters:
            raise Broken(f"{own} is erased, and votes in what is committed: {latest}")
        birth = member.birth if self.scope.lacks("births are over when erased") else 0
        return ModelMember(birth, hint=self.scope.start if birth else None, over=member.birth, seen=member.seen)

    def _lose(self, state: State, node: int) -> Iterator[tuple[str, State]]:
        member = state.members[node - 1]
        if not state.losses or node not in self.scope.loses or not member.birth:
            return
        known = [one.configuration for one in state.metadata[: member.seen] if isinstance(one, ToldEnd)]
        hint = None if known and member.birth != FOUNDING_BIRTH else self.scope.start
        if self.scope.lacks("the asker's word"):
            hint = known[-1] if known else self.scope.start
        life = self.scope.losses - state.losses + 1
        empty = ModelMember(member.birth, mute=True, life=life, hint=hint, over=member.over, seen=member.seen)
        yield f"node {node} loses its disk", _with(state, node, empty)._replace(losses=state.losses - 1)


def _with(state: State, node: int, member: ModelMember) -> State:
    return state._replace(members=(*state.members[: node - 1], member, *state.members[node:]))


def _last(log: Log) -> tuple[int, int]:
    return (log[-1].term if log else 0, len(log))


def _nodes(replicas: frozenset[Replica]) -> set[int]:
    return {replica.node for replica in replicas}


def _wish(metadata: tuple[Wish | str | ToldEnd, ...]) -> Wish | None:
    """The move that these metadata want; none, if they know how it ended."""
    wish: Wish | None = None
    for command in metadata:
        if isinstance(command, Wish):
            wish = command
        elif isinstance(command, ToldEnd):
            wish = None
        elif wish is not None:
            wish = replace(wish, is_cancelled=True)
    return wish


def _is_done(wish: Wish, latest: Configuration) -> bool:
    return (wish.voter is None or wish.voter in latest.voters) and wish.leaving not in latest.voters


def _told(command: Wish | str | ToldEnd) -> str:
    if isinstance(command, Wish):
        return f"move {command.move}"
    return command if isinstance(command, str) else f"v{command.configuration.version}"
