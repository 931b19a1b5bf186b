"""Errors in Spark besides those of the client, and how all of them are shown.

Spark shows the whole traceback of a worker. A person looks for one sentence in it, so an error of ours shows nothing
else, unless it is a defect.
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
    """Error as Spark is told it: the reason and the advice in one sentence."""


@contextmanager
def one_sentence() -> Iterator[None]:
    """Let errors of ours leave the block as one sentence only."""
    try:
        yield
    except (SourceFailed, InternalError):
        raise
    except HoldfastError as error:
        _hide_traceback()
        raise SourceFailed(f"{error}; {error.advice}", retriable=error.retriable) from None


def _hide_traceback() -> None:
    """Hide the traceback in a worker of Spark's, which ends when it has told the driver: nothing else is hidden by
    this."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name.startswith("pyspark."):
        os.environ[HIDES_TRACEBACK] = "1"


def in_one_sentence(function: Callable[P, T]) -> Callable[P, T]:
    """Let errors of ours leave the function as one sentence only."""

    @functools.wraps(function)
    def told(*args: P.args, **kwargs: P.kwargs) -> T:
        with one_sentence():
            return function(*args, **kwargs)

    return told
