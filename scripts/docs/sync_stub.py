"""Stub `holdfast/client/sync/twins.pyi`: what type checkers and editors read of the synchronous clients.

The methods of these are made at import from the asyncio classes (`holdfast.client.sync.blocking_proxy`). The stub is
written from the same methods, so that each parameter and each docstring stands once in code that somebody writes.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from holdfast.client.sync import clients, twins
from holdfast.client.sync.blocking_proxy import Block, SyncClient, Twin, public_members

STUB = "holdfast/client/sync/twins.pyi"
HEAD = """\"\"\"Bases of the synchronous clients, as the asyncio classes have their methods: change those.

Written by scripts/docs/sync_stub.py (make reference).\"\"\"
"""


def stub(parameters: Callable[[Any], list[str]]) -> str:
    """The text of the stub. `parameters`: those of a function, as they are written."""
    imports: set[str] = set()
    body = [line for kind in vars(twins).values() if _is_made(kind) for line in _class(kind, parameters, imports)]
    text = "\n".join([HEAD, *sorted(imports), *body])
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", STUB, "-"]
    return subprocess.run(command, input=text, capture_output=True, check=True, text=True).stdout


def _is_made(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Twin) and kind not in (Twin, Block, SyncClient)


def _class(kind: type[Twin[Any]], parameters: Callable[[Any], list[str]], imports: set[str]) -> Iterator[str]:
    original, base = kind._original, kind.__bases__[0]
    imports |= {"import holdfast.client", f"from {base.__module__} import {base.__name__}"}
    yield f"class {kind.__name__}({base.__name__}[holdfast.client.{original.__name__}]):"
    yield f'    """{kind.__doc__}"""'
    members = public_members(original)
    if issubclass(kind, SyncClient):
        members = {"__init__": original.__init__, **members}
    module = sys.modules[original.__module__]
    for name, member in members.items():
        getter = member.fget if isinstance(member, property) else member
        if not inspect.isfunction(getter):  # an attribute
            imports |= _imports(member, module)
            yield from ("    @property", f"    def {name}(self) -> {member}: ...")
            continue
        if getter is not member:
            yield "    @property"
        yield from _function(getter, parameters, imports)
        if getter is not member and member.fset is not None:
            yield f"    @{name}.setter"
            yield from _function(member.fset, parameters, imports)


def _function(function: Any, parameters: Callable[[Any], list[str]], imports: set[str]) -> Iterator[str]:
    result = str(inspect.signature(function).return_annotation)
    for annotation in function.__annotations__.values():
        imports |= _imports(annotation, sys.modules[function.__module__])
    given = ", ".join(["self", *parameters(function)])
    yield f"    def {function.__name__}({given}) -> {result.removeprefix('Async')}:"
    yield f'        """{function.__doc__}"""' if function.__doc__ else "        ..."


def _imports(annotation: str, module: ModuleType) -> set[str]:
    names = {node.id for node in ast.walk(ast.parse(annotation)) if isinstance(node, ast.Name)}
    names = {name for name in names if not hasattr(builtins, name) and not _is_made(vars(twins).get(name))}
    return {f"from {_home(name, module)} import {name.removeprefix('Async')}" for name in names}


def _home(name: str, module: ModuleType) -> str:
    """The module that a name in another one comes from."""
    if issubclass(vars(clients).get(name, object), Twin):
        return clients.__name__
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ImportFrom) and node.module and name in {alias.name for alias in node.names}:
            return node.module
    return module.__name__
