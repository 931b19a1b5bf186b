"""Twins of asyncio classes: a twin makes each call on the thread of the asyncio object, and waits for it.

A second client with the same methods would repeat their parameters and docstrings. So these are written once, at the
asyncio method: `twin_class` makes the twin's methods from those, also for `help()`. For type checkers and editors they
stand in `twins.pyi`, which `make reference` writes from the same source.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, suppress
from functools import wraps
from types import new_class
from typing import Any, ClassVar, Generic, Self, TypeVar

from holdfast.client.errors import ClosedError, InvalidOperationError
from holdfast.client.loop_thread import LoopThread

T = TypeVar("T")
C = TypeVar("C")
B = TypeVar("B", bound=AbstractAsyncContextManager[Any])

CALLED_BY_THE_CLIENT = frozenset(
    {"answered", "deliver", "drop", "fail", "handed_out", "of", "reader_finished", "settle"}
)
"""Public names that are not for programs: other parts of the client call them."""
LAST_CALLS = frozenset({"close", "abandon"})
"""Methods of a client with which its thread ends."""


class Twin(Generic[C]):
    """An object of `holdfast.client`, with the thread on which it runs."""

    _original: ClassVar[type]

    def __init__(self, thread: LoopThread, inner: C) -> None:
        self._thread, self._inner = thread, inner


TWINS: dict[type, type[Twin[Any]]] = {}
"""Twins that methods return, each by its asyncio class."""


class Block(Twin[B]):
    """A twin that is a context manager."""

    def __enter__(self) -> Self:
        self._thread.run(self._inner.__aenter__)
        return self

    def __exit__(self, *error: Any) -> None:
        self._thread.run(lambda: self._inner.__aexit__(*error))


class SyncClient(Block[B]):
    """A twin with a thread of its own, which ends when the client is closed."""

    def __init__(self, *args: Any, **named: Any) -> None:
        thread = LoopThread(f"holdfast {self._original.__name__}")
        try:
            super().__init__(thread, thread.call(lambda: self._original(*args, **named)))
        except BaseException:
            thread.close()
            raise

    def __enter__(self) -> Self:
        try:
            return super().__enter__()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(self, *error: Any) -> None:
        self._end(lambda: self._inner.__aexit__(*error))

    def _end(self, call: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Make the last call, then end the thread, even after an error. Idempotent."""
        if self._thread.is_elsewhere:
            return
        self._thread.check_thread()
        try:
            with suppress(ClosedError):
                self._thread.run(call)
        finally:
            self._thread.close()


def twin_class(module: str, name: str, base: type[Twin[Any]], original: type) -> Any:
    """Make a class for a module, with the public methods and attributes of an asyncio class, without `async`. What a
    method returns is a twin, too, if there is one for it."""
    made = {member: _member(member, one) for member, one in public_members(original).items()}
    if issubclass(base, SyncClient):
        made["__init__"] = wraps(vars(original)["__init__"])(lambda *args, **named: SyncClient.__init__(*args, **named))
    made |= {"_original": original, "__doc__": f"See `holdfast.client.{original.__name__}`.", "__module__": module}
    return new_class(name, (base,), exec_body=lambda body: body.update(made))


def public_members(original: type) -> dict[str, Any]:
    """Return the public members of an asyncio class: methods, properties, and attributes as the text of their types."""
    found: dict[str, Any] = {}
    for owner in reversed(original.__mro__):
        found |= inspect.get_annotations(owner)
        found |= {name: it for name, it in vars(owner).items() if inspect.isfunction(it) or isinstance(it, property)}
    return {name: it for name, it in found.items() if name[0] != "_" and name not in CALLED_BY_THE_CLIENT}


def _member(name: str, original: Any) -> Any:
    if inspect.isasyncgenfunction(original):
        return _generator(original)
    if inspect.isfunction(original):
        return _method(original)

    def write(self: Twin[Any], value: object) -> None:
        setattr(self._inner, name, value)

    doc, setter = (original.__doc__, original.fset) if isinstance(original, property) else (None, None)
    return property(lambda self: getattr(self._inner, name), setter and write, doc=doc)  # on the program's thread


def _method(original: Callable[..., Any]) -> Callable[..., Any]:
    on_thread: Any = LoopThread.run if inspect.iscoroutinefunction(original) else LoopThread.call

    @wraps(original)
    def call(self: Twin[Any], *args: Any, **named: Any) -> Any:
        result = on_thread(self._thread, lambda: original(self._inner, *args, **named))
        twin = TWINS.get(type(result))
        return result if twin is None else twin(self._thread, result)

    @wraps(original)
    def last_call(self: SyncClient[Any]) -> None:
        self._end(lambda: original(self._inner))

    return last_call if original.__name__ in LAST_CALLS else call


def _generator(original: Callable[..., AsyncGenerator[T, None]]) -> Callable[..., Generator[T, None, None]]:
    """A loop that ends early closes the asynchronous generator."""

    @wraps(original)
    def call(self: Twin[Any], *args: Any, **named: Any) -> Generator[T, None, None]:
        items = original(self._inner, *args, **named)

        async def following() -> T | None:
            return await anext(items, None)

        try:
            while (item := self._thread.run(following)) is not None:
                yield item
        finally:
            with suppress(ClosedError, InvalidOperationError):  # the latter in a process that was forked meanwhile
                self._thread.run(items.aclose)

    signature = inspect.signature(original)
    returns = str(signature.return_annotation).removeprefix("Async")
    call.__signature__ = signature.replace(return_annotation=returns)  # type: ignore[attr-defined]
    return call
