"""Hubs of the emulator's configuration file, made as logs.

Source: Config.json of the Event Hubs emulator: `UserConfig.NamespaceConfig[0].Entities[]` with Name, PartitionCount and
ConsumerGroups. Entries that mean nothing here are left alone: logging, and the groups, which exist once somebody reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.cli.shared.errors import EXIT_USAGE, CliError
from holdfast.client.admin import AdminClient

MAX_PARTITIONS = 1000


def read_entities(path: Path) -> dict[str, int]:
    """Read the hubs of a configuration: name -> partitions. Raises CliError that names the entry to mend."""
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise _wrong(path, f"it cannot be read: {error}") from error
    namespaces = _at(path, document, "UserConfig", "NamespaceConfig")
    if not isinstance(namespaces, list) or len(namespaces) != 1:
        raise _wrong(path, "UserConfig.NamespaceConfig: name one namespace")
    entities = _at(path, namespaces[0], "Entities")
    if not isinstance(entities, list):
        raise _wrong(path, "Entities: a list of hubs")
    found: dict[str, int] = {}
    for place, entity in enumerate(entities):
        where = f"Entities[{place}]"
        name = entity.get("Name") if isinstance(entity, Mapping) else None
        if not isinstance(name, str) or not name:
            raise _wrong(path, f"{where}.Name: a hub needs a name")
        if name in found:
            raise _wrong(path, f"{where}.Name: {name!r} stands twice")
        found[name] = _partitions(path, where, entity.get("PartitionCount", 1))
    return found


def _partitions(path: Path, where: str, said: Any) -> int:
    text = str(said)
    if isinstance(said, bool) or not text.isdecimal() or not 1 <= int(text) <= MAX_PARTITIONS:
        raise _wrong(path, f"{where}.PartitionCount: {said!r} is no number of partitions, 1 to {MAX_PARTITIONS}")
    return int(text)


def _at(path: Path, document: Any, *names: str) -> Any:
    for name in names:
        if not isinstance(document, Mapping) or name not in document:
            raise _wrong(path, f"{'.'.join(names)}: is not there; see docs/clients/event-hubs.md for an example")
        document = document[name]
    return document


def _wrong(path: Path, why: str) -> CliError:
    return CliError(f"{path}: {why}", exit_code=EXIT_USAGE)


async def make_hubs(admin: AdminClient, wanted: Mapping[str, int], replicas: int) -> list[str]:
    """Create what is missing, and add partitions where there are too few; return what was done. Nothing is removed.
    Raises CliError, HoldfastError."""
    done = []
    existing = {log["name"]: log["partitions"] for log in await admin.list_logs()}
    for name, partitions in wanted.items():
        now = existing.get(name)
        if now is None:
            await admin.create_log(name, partitions=partitions, replicas=replicas)
            done.append(f"hub {name}: made, {partitions} partitions")
        elif now > partitions:
            raise CliError(
                f"hub {name} has {now} partitions, and the configuration names {partitions}: there are never fewer",
                advice=f"name {now}, or delete it: holdfast log delete {name}",
            )
        elif now < partitions:
            await admin.alter_log(name, partitions=partitions)
            done.append(f"hub {name}: {partitions} partitions instead of {now}")
    return done
