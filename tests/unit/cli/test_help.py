"""Every text of `--help` tells in a sentence what happens: it begins with a verb and ends with a period."""

from __future__ import annotations

from collections.abc import Iterator

import click

from holdfast.cli.app import main

VERBS = frozenset(
    (
        "Acknowledge",
        "Add",
        "Admit",
        "Allow",
        "Ask",
        "Begin",
        "Break",
        "Change",
        "Choose",
        "Claim",
        "Compress",
        "Connect",
        "Create",
        "Delete",
        "Deny",
        "Do",
        "Draw",
        "End",
        "Find",
        "Follow",
        "Forget",
        "Give",
        "Go",
        "Have",
        "Hurt",
        "Judge",
        "Keep",
        "Let",
        "List",
        "Listen",
        "Log",
        "Look",
        "Make",
        "Move",
        "Name",
        "Number",
        "Open",
        "Print",
        "Publish",
        "Reach",
        "Read",
        "Remember",
        "Remove",
        "Require",
        "Return",
        "Roll",
        "Run",
        "Say",
    "Serve",
        "Set",
        "Share",
        "Show",
        "Skip",
        "Split",
        "Start",
        "Stop",
        "Take",
        "Trust",
        "Use",
        "Wait",
        "Write",
    )
)


def texts(command: click.Command, name: str) -> Iterator[tuple[str, str | None]]:
    """Name and text of a command, of its options, and of the commands below it."""
    yield name, command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield f"{name} {parameter.opts[0]}", parameter.help
    if isinstance(command, click.Group):
        for word, below in command.commands.items():
            yield from texts(below, f"{name} {word}")


def test_a_text_of_help_begins_with_a_verb_and_ends_with_a_period() -> None:
    found = dict(texts(main, "holdfast"))
    assert len(found) > 500
    wrong = {}
    for name, text in found.items():
        first = " ".join((text or "").split("\n\n")[0].split())
        if not first.endswith(".") or first.split()[0].rstrip(",") not in VERBS:
            wrong[name] = first
    assert not wrong
