"""Login of Spark's processes at the nodes: options that name files, which every worker can read.

Problem: options of a data source stand in plans, in the web page and in logs of Spark. So no secret is an option: a
password or a token is the first line of a file, read in each process at each connection. Certificates are files anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from holdfast.client import ConfigurationError, Security
from holdfast.client.transport.security.credentials import token_in
from holdfast.spark.errors import OptionError

NAMES: Final = ("tls", "ca", "cert", "certKey", "user", "passwordFile", "tokenFile", "mechanism")
SECRETS: Final = ("password", "token")


def security_of(texts: Mapping[str, str]) -> Security:
    """Security that the options give, by their names in lower case. Raises OptionError."""
    for name in SECRETS:
        if name in texts:
            raise OptionError(
                f"option {name} would be shown in Spark's plans", advice=f"write it into a file, and give {name}File"
            )
    tls = texts.get("tls", "false").lower()
    if tls not in ("true", "false"):
        raise OptionError(f"option tls is true or false, not {texts['tls']!r}")
    token_file = texts.get("tokenfile", "")
    security = Security(
        tls=tls == "true",
        ca=texts.get("ca", ""),
        cert=texts.get("cert", ""),
        key=texts.get("certkey", ""),
        user=texts.get("user", ""),
        password_file=texts.get("passwordfile", ""),
        token=partial(token_in, token_file) if token_file else "",
        mechanism=texts.get("mechanism", ""),
    )
    try:
        security.check()
    except ConfigurationError as error:
        raise OptionError(f"options of the login: {error}", advice=error.advice) from error
    return security


def options_of(security: Security) -> dict[str, str]:
    """Options that give this Security. Raises OptionError for secrets that are in no file."""
    if security.password or security.token:
        raise OptionError(
            "a job on Spark logs in by files that each of its processes can read",
            advice="give a user with a file of the password, or a certificate; spark-submit takes --token-file",
        )
    found = {
        "tls": "true" if security.tls else "",
        "ca": _absolute(security.ca),
        "cert": _absolute(security.cert),
        "certKey": _absolute(security.key),
        "user": security.user,
        "passwordFile": _absolute(security.password_file),
        "mechanism": security.mechanism,
    }
    return {name: value for name, value in found.items() if value}


def _absolute(path: str) -> str:
    """Make a path absolute: workers have folders of their own."""
    return str(Path(path).absolute()) if path else ""
