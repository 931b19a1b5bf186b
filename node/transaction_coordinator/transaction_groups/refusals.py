"""Refusals of requests about groups, and their reasons in a sentence."""

from __future__ import annotations

from node.transaction_coordinator.coordinator_commands import MAX_ID_CHARACTERS, Code, Declined
from node.transaction_coordinator.transaction_groups.group_commands import JoinGroup, OpenGroup
from node.transaction_coordinator.transaction_groups.group_state import GroupRecord, MemberRecord, WriterRecord
from node.transaction_coordinator.transaction_groups.group_transitions import MemberFate

MAX_NAME_CHARACTERS = 128
"""Characters of a run, a part and an attempt: a name of thirty characters is usual."""

MAX_TIMEOUT_MS = 4 * 3600 * 1000
"""Longest timeout of a group: committed readers may have to wait so long for its prepared members."""

MIN_LEASE_MS, MAX_LEASE_MS = 2000, 5 * 60 * 1000
"""Bounds of a lease: renewals come twice a second, and are looked at as often; and committed readers wait so long for a
member that has died."""

MAX_BATCH = (1 << 63) - 1

NAMED = 10
"""Members that a refusal names."""

FATES = {
    MemberFate.JOINED: "not prepared",
    MemberFate.PREPARED: "prepared",
    MemberFate.COMMITTED: "committed",
    MemberFate.ABORTED: "aborted",
}

WHY = {
    "lease": ", since its client was silent for as long as its lease",
    "timeout": ", since its time was over",
    "fenced": ", since a newer run, or a later batch, was opened",
    "operator": " by an operator",
}


def improper(command: OpenGroup) -> str:
    """The fault of a command, as a sentence; "": it has none."""
    if not 0 < len(command.writer) <= MAX_ID_CHARACTERS or command.writer.startswith("$"):
        return f"a writer's name has 1 to {MAX_ID_CHARACTERS} characters, and no dollar sign in front"
    if not 0 < len(command.run) <= MAX_NAME_CHARACTERS or len(command.query) > MAX_ID_CHARACTERS:
        return f"a run has 1 to {MAX_NAME_CHARACTERS} characters, and a query at most {MAX_ID_CHARACTERS}"
    if not 0 <= command.batch <= MAX_BATCH:
        return f"a batch is a number from 0 on, not {command.batch}"
    if not 0 < command.timeout_ms <= MAX_TIMEOUT_MS:
        return f"a group is given 1 to {MAX_TIMEOUT_MS} ms, not {command.timeout_ms}"
    return ""


def improper_member(command: JoinGroup) -> str:
    if not (0 < len(command.part) <= MAX_NAME_CHARACTERS and len(command.attempt) <= MAX_NAME_CHARACTERS):
        return f"a part and an attempt have at most {MAX_NAME_CHARACTERS} characters, and a part has one at least"
    if not MIN_LEASE_MS <= command.lease_ms <= MAX_LEASE_MS:
        return f"a lease is {MIN_LEASE_MS} to {MAX_LEASE_MS} ms, not {command.lease_ms}"
    return "" if command.holder else "a member needs a holder"


def succeeded(writer: WriterRecord, run: str) -> Declined:
    return Declined("fenced", f"run {run!r} of {writer.name!r} was succeeded by {writer.run!r}")


def another_query(writer: WriterRecord, command: OpenGroup) -> str:
    return (
        f"writer {writer.name!r} has committed batch {writer.closed} for query {writer.query!r}; query "
        f"{command.query!r} comes with batch {command.batch}, which would be taken for done. Was its checkpoint "
        f"deleted? Give it a writer of another name, or batches above {writer.closed}"
    )


def aborted(member: MemberRecord) -> Declined:
    codes: dict[str, Code] = {"lease": "expired", "timeout": "expired", "fenced": "fenced", "group": "fenced"}
    code = codes.get(member.how, "ended")
    return Declined(code, f"member {member.what} was aborted{WHY.get(member.how, '')}")


def how_it_ended(how: str) -> str:
    """The end of a group as a phrase for error texts."""
    return {"client": " by its writer", **WHY}.get(how, "")


def unfit(group: GroupRecord, winners: list[str]) -> Declined | None:
    """The refusal of these winners; None: they can win."""
    members = {one.id: one for one in group.members}
    strange = [winner for winner in winners if winner not in members]
    if strange:
        detail = f"batch {group.batch}, as it is open now, has no such members: {', '.join(strange[:NAMED])}"
        return Declined("not-prepared", detail)
    late = [members[winner] for winner in winners if members[winner].fate is not MemberFate.PREPARED]
    if late:
        names = ", ".join(f"{one.what} is {FATES[one.fate]}{WHY.get(one.how, '')}" for one in late[:NAMED])
        return Declined("not-prepared", f"nothing was decided of batch {group.batch}: {names}")
    parts: set[str] = set()
    for winner in winners:
        part = members[winner].part
        if part in parts:
            return Declined("invalid", f"nothing was decided of batch {group.batch}: part {part!r} would win twice")
        parts.add(part)
    return None
