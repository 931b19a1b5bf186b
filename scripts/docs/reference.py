"""Pages of the reference that are written from the source: command line, client, errors, configuration, metrics, SDKs.

    python -m scripts.docs.reference           writes them into docs/reference/, and the stub of the synchronous client
    python -m scripts.docs.reference --check   exit status 1 when one is not as it would be written

The rule: a fact stands once, where the program has it; whoever reads the page reads that. A page that says something
wrong is mended in the source. Rejected: making the pages only when the site is built. They would be missing for those
who read the repository.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import re
import sys
import textwrap
import tokenize
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

import holdfast.client
from holdfast.cli.app import main as command_line
from holdfast.client import errors
from node import config
from node.monitoring import group_lag, metrics, move_metrics
from scripts.docs import event_hubs_sdks
from scripts.docs.sync_stub import STUB, stub

ROOT = Path(__file__).resolve().parents[2]
PAGES = tuple(
    f"docs/reference/{name}.md" for name in ("cli", "client", "errors", "configuration", "metrics", "event-hubs-sdks")
)
MADE = (*PAGES, STUB)
HEAD = "<!-- Written by scripts/docs/reference.py (make reference) from {source}: change that. -->"
COMMON_TO = 20
"""An option with the same words at so many commands is told once."""

FIRST = (
    "ProducerClient", "ProducerOptions", "ConsumerClient", "ConsumerOptions", "AdminClient", "RangeClient",
    "RangeOptions", "Transaction", "TransactionGroup", "GroupMember", "NetworkOptions", "Security",
)  # fmt: skip
"""Names with which the page of the client begins; the others follow in the order of the alphabet."""


def main() -> int:
    stale = [page for page in MADE if not (ROOT / page).exists() or (ROOT / page).read_text("utf-8") != render(page)]
    check = "--check" in sys.argv
    for page in stale:
        if not check:
            (ROOT / page).write_text(render(page), "utf-8")
        print(f"{'stale' if check else 'written'}: {page}")
    return 1 if stale and check else 0


def render(page: str) -> str:
    """The text of one of those that are `MADE`."""
    makers: dict[str, Callable[[], Iterable[str]]] = {
        "cli": cli, "client": client, "errors": error_table, "configuration": configuration, "metrics": metric_table,
        "event-hubs-sdks": sdks,
    }  # fmt: skip
    if page == STUB:
        return stub(parameters)
    text = "\n".join(makers[Path(page).stem]())
    return re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"


def head(title: str, source: str) -> list[str]:
    return [f"# {title}", "", HEAD.format(source=source), ""]


def cell(text: str) -> str:
    """The text as a cell of a table holds it."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def sdks() -> Iterator[str]:
    yield from event_hubs_sdks.page(
        head("SDKs of Event Hubs", "scripts/docs/event_hubs_sdks.py and what tests measured")
    )


# ---------------------------------------------------------------- the command line


def cli() -> Iterator[str]:
    yield from head("Command line", "the commands' own help")
    yield from shown(command_line.help)
    commands = list(walk(command_line, ["holdfast"]))
    records: dict[tuple[str, str], int] = {}
    for context in commands:
        for record in options(context):
            records[record] = records.get(record, 0) + 1
    common = {record for record, count in records.items() if count >= COMMON_TO}
    yield from ("## Options of nearly all commands", "", "| option | |", "| --- | --- |")
    yield from (f"| {name} | {text} |" for name, text in records if (name, text) in common)
    for context in commands:
        yield from ("", f"## {context.command_path}", "")
        yield from shown(context.command.help)
        yield from (
            "```",
            f"{context.command_path} {' '.join(context.command.collect_usage_pieces(context))}",
            "```",
            "",
        )
        own = [record for record in options(context) if record not in common]
        if own:
            yield from ("| option | |", "| --- | --- |", *(f"| {name} | {text} |" for name, text in own), "")


def walk(command: click.Command, path: list[str], parent: click.Context | None = None) -> Iterator[click.Context]:
    """The contexts of all commands that do something, in the order of their names."""
    context = click.Context(command, info_name=path[-1], parent=parent, **command.context_settings)
    if not isinstance(command, click.Group):
        yield context
        return
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        if child is not None and not child.hidden:
            yield from walk(child, [*path, name], context)


def options(context: click.Context) -> list[tuple[str, str]]:
    found = []
    for parameter in context.command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            names = re.findall(r"--?[a-z][\w-]*", record[0].split("[")[0])
            if "--help" in parameter.opts:  # click keeps it as the command was first asked for it, perhaps alone
                found.append((", ".join(f"`{name}`" for name in context.help_option_names), cell(record[1])))
                continue
            value = record[0].rsplit(names[-1], 1)[1].replace(" RANGE", "").strip()
            found.append((", ".join(f"`{name}`" for name in names) + f" {cell(value)}".rstrip(), cell(record[1])))
    return found


def shown(text: str | None) -> Iterator[str]:
    """Paragraphs of a help text; those that click does not wrap stand as they are."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text or "")):
        if paragraph.startswith("\b"):
            yield from ("```text", paragraph.removeprefix("\b").strip("\n"), "```", "")
        else:
            yield from (paragraph.replace("<", "&lt;"), "")


# ---------------------------------------------------------------- the client


def client() -> Iterator[str]:
    yield from head("Python client", "the docstrings of holdfast/client")
    yield from (
        "All names are in `holdfast.client`. `holdfast.client.sync` has the clients with the same methods, without",
        "`await`. Errors have [a page of their own](errors.md).",
        "",
    )
    names = [name for name in holdfast.client.__all__ if not name.endswith("Error")]
    for name in sorted(names, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name)):
        thing = getattr(holdfast.client, name)
        yield from (f"## {name}", "")
        yield from (class_page(thing) if isinstance(thing, type) else function_page(name, thing))


def class_page(kind: type) -> Iterator[str]:
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    if not fields and "__init__" in vars(kind):
        yield from code(f"{kind.__name__}{signature(kind.__init__)}")
    yield from described(kind.__doc__)
    if not fields and "__init__" in vars(kind):
        yield from described(kind.__init__.__doc__)
    if fields:
        meanings = comments(kind)
        yield from ("| field | type | default | |", "| --- | --- | --- | --- |")
        for field in fields:
            kind_of, given = cell(f"{field.type}"), default_of(field)
            yield f"| `{field.name}` | {kind_of} | {given} | {cell(meanings.get(field.name, ''))} |"
        yield ""
    for name, member in members(kind):
        if isinstance(member, property):
            yield from (f"### {kind.__name__}.{name}", "")
            yield from described(member.__doc__ or (member.fget.__doc__ if member.fget else None))
        else:
            yield from (f"### {kind.__name__}.{name}()", "")
            yield from function_page(name, member)


def function_page(name: str, function: Any) -> Iterator[str]:
    word = "async " if inspect.iscoroutinefunction(function) else ""
    yield from code(f"{word}{name}{signature(function)}")
    yield from described(function.__doc__)


def members(kind: type) -> list[tuple[str, Any]]:
    """Public methods and properties with a docstring, of the class and of its bases in this project."""
    found: dict[str, Any] = {}
    for owner in reversed(kind.__mro__):
        if owner.__module__.startswith("holdfast."):
            for name, raw in vars(owner).items():
                member = raw.__func__ if isinstance(raw, staticmethod | classmethod) else raw
                if not name.startswith("_") and isinstance(member, property | types.FunctionType):
                    found[name] = member
    return [(name, member) for name, member in found.items() if member.__doc__]


def parameters(function: Any) -> list[str]:
    """Parameters as they are written, without `self`."""
    words, bare = [], False
    for one in inspect.signature(function).parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and not bare:
            words.append("*")
        bare = bare or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        star = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        annotation = "" if one.annotation is one.empty else f": {one.annotation}"
        default = "" if one.default is one.empty else f" = {one.default!r}"
        words.append(f"{star}{one.name}{annotation}{default}")
    return words


def signature(function: Any) -> str:
    """Parameters and result as they are written; on lines of their own where they are long."""
    words = parameters(function)
    text = ", ".join(words)
    if len(text) > 80:
        text = "".join(f"\n    {word}," for word in words) + "\n"
    result = inspect.signature(function).return_annotation
    return f"({text})" + ("" if result in ("None", inspect.Signature.empty) else f" -> {result}")


def code(text: str) -> list[str]:
    return ["```python", text, "```", ""]


def described(docstring: str | None) -> list[str]:
    """A docstring as Markdown: paragraphs that are a program are code, a list of errors is a list."""
    text = inspect.cleandoc(docstring or "")
    text = re.sub(r"^(Raises|Args|Returns):\n((?: {4}.*(?:\n|$))+)", as_list, text, flags=re.MULTILINE)
    paragraphs = [
        f"```python\n{paragraph}\n```" if is_program(paragraph) else paragraph for paragraph in text.split("\n\n")
    ]
    return ["\n\n".join(paragraphs), ""]


def is_program(paragraph: str) -> bool:
    if "\n    " not in paragraph:
        return False
    try:
        ast.parse(f"async def program():\n{textwrap.indent(textwrap.dedent(paragraph), '    ')}")
    except SyntaxError:
        return False
    return True


def as_list(found: re.Match[str]) -> str:
    items = re.split(r"\n(?=\S)", textwrap.dedent(found[2]).strip())
    return "\n".join([f"{found[1]}:", "", *(f"- {' '.join(item.split())}" for item in items), ""])


def default_of(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{field.default!r}`"
    return "" if field.default_factory is dataclasses.MISSING else f"`{field.default_factory.__name__}()`"


def comments(kind: type) -> dict[str, str]:
    """Comments on the fields of a class, behind them or in the lines in front of them."""
    source = textwrap.dedent(inspect.getsource(kind))
    said = {
        token.start[0]: (token.string.lstrip("# "), token.line.strip().startswith("#"))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for item in tree.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            before = []
            line = item.lineno - 1
            while line in said and said[line][1]:
                before.insert(0, said[line][0])
                line -= 1
            behind = [said[item.end_lineno or 0][0]] if item.end_lineno in said else []
            found[item.target.id] = " ".join([*before, *behind])
    return found


# ---------------------------------------------------------------- errors


def error_table() -> Iterator[str]:
    yield from head("Errors", "holdfast/client/errors.py")
    yield from (
        "All that the client raises is a `HoldfastError`. `error.retriable` says whether the same call may succeed",
        "later, `error.advice` what to do; both may differ from the class's for one error.",
        "[Errors and retries](../clients/errors.md) says how a program deals with them.",
        "",
        "| error | is a | retriable | meaning | advice |",
        "| --- | --- | --- | --- | --- |",
    )
    public = [getattr(errors, name) for name in holdfast.client.__all__ if name.endswith("Error")]
    for kind in sorted(public, key=lambda kind: (kind is not errors.HoldfastError, kind.__name__)):
        base = "" if kind is errors.HoldfastError else f"`{kind.__bases__[0].__name__}`"
        row = (
            f"`{kind.__name__}`",
            base,
            "yes" if kind.retriable else "no",
            cell(kind.__doc__ or ""),
            cell(kind.advice),
        )
        yield f"| {' | '.join(row)} |"
    yield from ("", "## Codes of `AdminError`", "", "| `code` | advice |", "| --- | --- |")
    yield from (f"| `{code}` | {cell(advice)} |" for code, advice in errors.ADMIN_ADVICE.items())
    yield f"| `not-found` | {cell('; '.join(dict.fromkeys(errors.NOT_FOUND_ADVICE.values())))} |"


# ---------------------------------------------------------------- the configuration of a node


def configuration() -> Iterator[str]:
    yield from head("Configuration of a node", "node/config.py")
    yield from (
        "`python -m node --config node.toml` reads a file in TOML. An unknown key, a wrong type or a value that cannot",
        "work is refused at start. [Configure](../operate/configure.md) has whole files.",
        "",
    )
    yield from section(config.Config, "")


def section(kind: type, path: str) -> Iterator[str]:
    meanings = comments(kind)
    rows, tables = [], []
    for field in msgspec.structs.fields(kind):
        name = f"{path}.{field.name}" if path else field.name
        inner = [one for one in parts(field.type) if isinstance(one, type) and issubclass(one, msgspec.Struct)]
        tables += [(one, name) for one in inner]
        if not inner:
            rows.append(f"| `{field.name}` | {type_of(field.type)} | {given(field)} | {cell(meanings[field.name])} |")
    if rows:
        yield from (f"## `{'[[listener]]' if path == 'listener' else f'[{path}]'}`", "", *described(kind.__doc__))
        yield from ("| key | value | default | |", "| --- | --- | --- | --- |", *rows, "")
    for inner_kind, name in tables:
        yield from section(inner_kind, name)


def parts(kind: Any) -> Iterator[Any]:
    """A type and those that it is made of."""
    yield kind
    for inner in typing.get_args(kind):
        yield from parts(inner)


def type_of(kind: Any) -> str:
    """The values that a key takes, in words."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        bounds = [meta for meta in inner[1:] if isinstance(meta, msgspec.Meta)]
        limits = [f"at least {meta.ge:,}" for meta in bounds if meta.ge is not None]
        limits += [f"at most {meta.le:,}" for meta in bounds if meta.le is not None]
        return ", ".join([type_of(inner[0]), *limits])
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin in (list, tuple):
        return f"list: {type_of(inner[0])}"
    if origin is dict:
        return f"table: {type_of(inner[0])} to {type_of(inner[1])}"
    return {str: "text", int: "whole number", float: "number", bool: "`true` or `false`"}[kind]


def given(field: msgspec.structs.FieldInfo) -> str:
    """The default of a key, as TOML has it."""
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f'`"{value}"`'
    if isinstance(value, list | tuple):
        return f"`[{', '.join(f'{chr(34)}{one}{chr(34)}' for one in value)}]`"
    return f"`{value}`"


# ---------------------------------------------------------------- metrics


def metric_table() -> Iterator[str]:
    yield from head("Metrics", "node/monitoring")
    yield from (
        "A node serves these at `/metrics` of `monitoring.bind`, in Prometheus' text format. Those of its process",
        "(`process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_open_fds`, ...) come with them.",
        "[Monitor](../operate/monitor.md) says which are worth an alarm.",
        "",
        "| metric | type | labels | |",
        "| --- | --- | --- | --- |",
    )
    for name, kind, labels, text in sorted(families()):
        yield f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {cell(text)} |"


def families() -> list[tuple[str, str, tuple[str, ...], str]]:
    """Name, type, labels and help of each metric, read off the calls that make them."""
    found: list[tuple[str, str, tuple[str, ...], str]] = []
    for module in (metrics, group_lag, move_metrics):
        tree = ast.parse(inspect.getsource(module))
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and function.name not in METRIC_MAKERS:
                MetricCalls(dict(vars(module)), found).visit(function)
    return found


METRIC_MAKERS = {
    "GaugeMetricFamily": "gauge",
    "CounterMetricFamily": "counter",
    "_gauge": "gauge",
    "_counter": "counter",
}


class MetricCalls(ast.NodeVisitor):
    """Finds the calls that make metrics in one function, with the values of the names that they use."""

    def __init__(self, names: dict[str, Any], found: list[tuple[str, str, tuple[str, ...], str]]) -> None:
        self._names = names
        self._found = found

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._names.pop(target.id, None)
                if self._is_known(node.value):
                    self._names[target.id] = self._value(node.value)

    def visit_For(self, node: ast.For) -> None:
        values = self._value(node.iter) if self._is_known(node.iter) else [None]
        for value in values:
            if value is not None:
                names = [one.id for one in ast.walk(node.target) if isinstance(one, ast.Name)]
                self._names.update(zip(names, value if len(names) > 1 else [value], strict=True))
            for statement in node.body:
                self.visit(statement)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        kind = METRIC_MAKERS.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if kind is not None:
            name, text = (self._value(argument) for argument in node.args[:2])
            labels = next((self._value(one.value) for one in node.keywords if one.arg == "labels"), ())
            full = name if kind == "gauge" else f"{name}_total"
            self._found.append((full, kind, tuple(labels), text))

    def _is_known(self, node: ast.expr) -> bool:
        """True if all names in it have a value here: constants of the module, and what was assigned from those."""
        names = [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
        return all(name in self._names for name in names) and not any(
            isinstance(one, ast.Call) and not isinstance(one.func, ast.Attribute) for one in ast.walk(node)
        )

    def _value(self, node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "<metrics>", "eval"), self._names)


if __name__ == "__main__":
    sys.exit(main())
