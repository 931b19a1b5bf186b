"""The Spark that a job runs on: the one of `spark-submit`, or one of its own."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from holdfast.client import Security
from holdfast.spark import login
from holdfast.spark.source import HoldfastDataSource

TIME_ZONE = "UTC"
"""The minutes and hours of jobs are UTC's."""


def session(name: str) -> SparkSession:
    """Settings that `spark-submit` or its configuration has made stay, but for what would change what a job says."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need what the job needs
    # Jobs say a line for each batch; Spark's bar of progress would be drawn over them.
    spark = SparkSession.builder.appName(name).config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", TIME_ZONE)
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(HoldfastDataSource)  # installed, it is found by itself; from a checkout it is not
    return spark


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> dict[str, Any]:
    """Arguments that `spark-submit` was given for a job; the login is one of its fields."""
    places = parser.add_argument_group("login", "Give these as to the data source: files that every worker can read.")
    names = {name.lower(): name for name in login.NAMES}
    for option in ("ca", "cert", "cert-key", "user", "password-file", "token-file", "mechanism"):
        places.add_argument(f"--{option}", dest=names[option.replace("-", "")])
    places.add_argument("--tls", action="store_const", const="true")
    found = vars(parser.parse_args(arguments))
    given = {name: found.pop(name) for name in login.NAMES}
    return {**found, "login": {name: value for name, value in given.items() if value is not None}}


def login_of(security: Security) -> dict[str, str]:
    """The options by which a job logs in as the command does that starts it."""
    return login.options_of(security)
