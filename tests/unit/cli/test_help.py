"""Every text of `--help` tells in a sentence what happens: it begins with a verb and ends with a period."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click

from holdfast.cli.app import main

ROOT = Path(__file__).parents[3]

VERBS = frozenset(
    (
        "Acknowledge",
        "Add",
        "Admit",
        "Allow",
        "Announce",
        "Ask",
        "Begin",
        "Break",
        "Change",
        "Choose",
        "Claim",
        "Compress",
        "Finalize",
        "Connect",
        "Create",
        "Delete",
        "Deny",
        "Do",
        "Draw",
        "End",
        "Fill",
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
        "Plan",
        "Print",
        "Publish",
        "Reach",
        "Read",
        "Relieve",
        "Remember",
        "Remove",
        "Replace",
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


def texts_of_program(path: Path) -> Iterator[tuple[str, str]]:
    """Those that a program gives to argparse."""
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") in ("add_argument", "ArgumentParser"):
            for keyword in call.keywords:
                if keyword.arg in ("help", "description"):
                    yield f"{path.name}:{call.lineno} {keyword.arg}", ast.unparse(keyword.value).strip("f'\"")


def is_sentence(text: str | None) -> bool:
    first = " ".join((text or "").split("\n\n")[0].split())
    return first.endswith(".") and first.split()[0].rstrip(",") in VERBS


def test_a_text_of_help_begins_with_a_verb_and_ends_with_a_period() -> None:
    found = dict(texts(main, "holdfast"))
    assert len(found) > 500
    for path in (ROOT / "node" / "program.py", *sorted((ROOT / "pipeline").glob("*.py"))):
        found |= dict(texts_of_program(path))
    assert any("audit.py" in name for name in found)
    wrong = {name: text for name, text in found.items() if not is_sentence(text)}
    assert not wrong
