"""What goes wrong in Spark besides what the client says, and how all of it is said.

Spark shows the whole traceback of a worker. What a person looks for in it is one sentence, so of an error of ours there
is nothing else, unless it is a defect.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from holdfast.client import ConfigurationError, HoldfastError
from holdfast.client.errors import InternalError

HIDES_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""Read by PySpark's workers where they write an error down (spark.sql.execution.pyspark.udf.hideTraceback.enabled)."""

P = ParamSpec("P")
T = TypeVar("T")


class OptionError(ConfigurationError):
    """An option of the data source can never work as it is given."""

    advice = "correct the option"


class DataLossError(HoldfastError):
    """Events that were asked for are not in the log any more, or the log is not the one that they were in."""

    advice = "begin where the log begins, or allow the loss with failOnDataLoss=false"


class SourceFailed(HoldfastError):
    """What Spark is told: the reason and the advice in one sentence."""


@contextmanager
def one_sentence() -> Iterator[None]:
    """Of an error of ours, only the sentence leaves the block."""
    try:
        yield
    except (SourceFailed, InternalError):
        raise
    except HoldfastError as error:
        _hide_traceback()
        raise SourceFailed(f"{error}; {error.advice}", retriable=error.retriable) from None


def _hide_traceback() -> None:
    """In a worker of Spark's, which ends when it has told the driver of the error: nothing else is hidden by this."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name.startswith("pyspark."):
        os.environ[HIDES_TRACEBACK] = "1"


def in_one_sentence(function: Callable[P, T]) -> Callable[P, T]:
    """The same for all that a function does."""

    @functools.wraps(function)
    def told(*args: P.args, **kwargs: P.kwargs) -> T:
        with one_sentence():
            return function(*args, **kwargs)

    return told
