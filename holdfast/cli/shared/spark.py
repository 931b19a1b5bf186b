"""Check that Spark can run here."""

from __future__ import annotations

import shutil

from holdfast import extras
from holdfast.cli.shared.errors import CliError


def check_spark(part: str = "spark") -> None:
    """Raise CliError if something is missing. `part`: what is to run there, a key of `holdfast.extras.EXTRAS`."""
    lacking = extras.missing(part)
    if lacking is not None:
        raise CliError(lacking)
    if shutil.which("java") is None:
        raise CliError("there is no Java here, which Spark runs on", advice="install a Java of 17 or 21")
