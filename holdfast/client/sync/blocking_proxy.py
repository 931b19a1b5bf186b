"""Twins of asyncio classes: a twin makes each call on the thread of the asyncio object, and waits for it.

A second client with the same methods would repeat their parameters and docstrings. So these are written once, at the
asyncio method. `blocking(aio.ProducerClient.flush)` is that method without the `async`, also for `help()` and for type
checkers.

Rejected: generated code. It would be a thousand more lines to read, and one more step to forget.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, suppress
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, cast, overload

from holdfast.client.errors import ClosedError
from holdfast.client.loop_thread import LoopThread

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
C = TypeVar("C")
B = TypeVar("B", bound=AbstractAsyncContextManager[Any])


class Twin(Generic[C]):
    """An object of `holdfast.client`, with the thread on which it runs."""

    def __init__(self, thread: LoopThread, inner: C) -> None:
        self._thread, self._inner = thread, inner


class Block(Twin[B]):
    """A twin that is a context manager."""

    def __enter__(self) -> Self:
        self._thread.run(self._inner.__aenter__)
        return self

    def __exit__(self, *error: Any) -> None:
        self._thread.run(lambda: self._inner.__aexit__(*error))


class SyncClient(Block[B]):
    """A twin with a thread of its own, which ends when the client is closed."""

    def __init__(self, what: str, make: Callable[[], B]) -> None:
        thread = LoopThread(f"holdfast {what}")
        try:
            super().__init__(thread, thread.call(make))
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


# ---------------------------------------------------------------- methods


@overload
def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]: ...
@overload
def blocking(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]: ...
def blocking(method: Callable[Concatenate[Any, P], Any]) -> Callable[Concatenate[Any, P], Any]:
    """Make a twin's method from an asyncio method, which may be a coroutine function or not."""
    on_thread = LoopThread.run if inspect.iscoroutinefunction(method) else LoopThread.call

    @wraps(method)
    def call(self: Twin[Any], *args: P.args, **named: P.kwargs) -> Any:
        return on_thread(self._thread, lambda: method(self._inner, *args, **named))

    return call


def giving(
    twin: Callable[[LoopThread, R], T], method: Callable[Concatenate[Any, P], R]
) -> Callable[Concatenate[Any, P], T]:
    """Wrap a twin's method so that it returns the twin of its result."""

    @wraps(method)
    def call(self: Twin[Any], *args: P.args, **named: P.kwargs) -> T:
        return twin(self._thread, method(self, *args, **named))

    return call


def ending(method: Callable[[Any], Coroutine[Any, Any, None]]) -> Callable[[Any], None]:
    """Make a client's method from an asyncio method; the client's thread ends with the call."""

    @wraps(method)
    def call(self: SyncClient[Any]) -> None:
        self._end(lambda: method(self._inner))

    return call


def iterating(
    method: Callable[Concatenate[Any, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Any, P], Generator[T, None, None]]:
    """Make a generator method from an asynchronous one; a loop that ends early closes the asynchronous generator."""

    @wraps(method)
    def call(self: Twin[Any], *args: P.args, **named: P.kwargs) -> Generator[T, None, None]:
        return _each(self._thread, method(self._inner, *args, **named))

    signature = inspect.signature(method)
    returns = str(signature.return_annotation).removeprefix("Async")
    cast(Any, call).__signature__ = signature.replace(return_annotation=returns)
    return call


def _each(thread: LoopThread, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    async def following() -> T | None:
        return await anext(items, None)

    try:
        while (item := thread.run(following)) is not None:
            yield item
    finally:
        with suppress(ClosedError):
            thread.run(items.aclose)


def like(
    method: Callable[Concatenate[Any, P], Any],
) -> Callable[[Callable[..., T]], Callable[Concatenate[Any, P], T]]:
    """Decorate a method with the parameters and the docstring of an asyncio method."""
    return cast(Any, wraps(method))


# ---------------------------------------------------------------- properties


class Attribute(Protocol[T_co]):
    """Type of a twin's property, for type checkers."""

    def __get__(self, twin: Any, kind: type | None = None) -> T_co: ...


def reading(original: Callable[[Any], T] | str) -> Attribute[T]:
    """Make a twin's property from an asyncio property, or from the name of an attribute that instances have; it is read
    on the program's thread.

    Each use declares the type, since only mypy infers it from a property of a class."""
    name, doc = original, None
    if not isinstance(name, str):
        name, doc = cast(Any, original).fget.__name__, original.__doc__
    return cast(Attribute[T], property(lambda twin: getattr(twin._inner, name), doc=doc))
