"""READMEs of the Ansible roles, written from their argument specifications.

    python scripts/role_docs.py           writes them
    python scripts/role_docs.py --check   exit status 1 when one is not as it would be written

The rule: a variable is described once, where Ansible checks it (`meta/argument_specs.yml`); whoever reads the README
reads that. What a role does beyond its variables stands in its specification's description.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).resolve().parents[1] / "ansible" / "roles"
HEAD = "<!-- Written by scripts/role_docs.py from meta/argument_specs.yml: change that. -->"


def main() -> int:
    stale = []
    for role in sorted(path.parent.parent for path in ROLES.glob("*/meta/argument_specs.yml")):
        readme, text = role / "README.md", render(role)
        if not readme.exists() or readme.read_text(encoding="utf-8") != text:
            stale.append(readme)
            if "--check" not in sys.argv:
                readme.write_text(text, encoding="utf-8")
    for readme in stale:
        print(f"{'stale' if '--check' in sys.argv else 'written'}: {readme.relative_to(ROLES)}")
    return 1 if stale and "--check" in sys.argv else 0


def render(role: Path) -> str:
    spec = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]["main"]
    lines = [f"# {role.name}", "", HEAD, "", *paragraphs(spec["description"]), "", "## Variables", ""]
    lines += ["| variable | type | default | meaning |", "| --- | --- | --- | --- |"]
    lines += [row(name, option) for name, option in rows("", spec["options"])]
    lines += ["", "## Tags", "", ", ".join(f"`{tag}`" for tag in tags(role)), ""]
    return "\n".join(lines)


def paragraphs(description: str | list[str]) -> list[str]:
    texts = [description] if isinstance(description, str) else description
    return [markdown(text) for text in texts]


def markdown(text: str) -> str:
    """Ansible's C(code) as Markdown's."""
    while (start := text.find("C(")) >= 0:
        end = text.index(")", start)
        text = f"{text[:start]}`{text[start + 2 : end]}`{text[end + 1 :]}"
    return " ".join(text.split())


def rows(prefix: str, options: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, option in options.items():
        yield prefix + name, option
        yield from rows(f"{prefix}{name}[].", option.get("options", {}))


def row(name: str, option: dict[str, Any]) -> str:
    kind = option["type"] + (f" of {option['elements']}" if "elements" in option else "")
    default = "**required**" if option.get("required") else value(option.get("default"))
    meaning = " ".join(paragraphs(option["description"]))
    if "choices" in option:
        meaning += " One of " + ", ".join(f"`{choice}`" for choice in option["choices"]) + "."
    return f"| `{name}` | {kind} | {default} | {meaning} |".replace("||", "|\\|")


def value(default: Any) -> str:
    text = default if isinstance(default, str) and default else json.dumps(default)
    return "`" + text.replace("|", "\\|") + "`"


def tags(role: Path) -> list[str]:
    tasks = yaml.safe_load((role / "tasks" / "main.yml").read_text(encoding="utf-8"))
    return sorted({tag for task in tasks for tag in task.get("tags", [])})


if __name__ == "__main__":
    sys.exit(main())
