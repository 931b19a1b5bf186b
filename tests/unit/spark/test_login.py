"""How a source or a sink logs in: by files, so that no secret stands in a plan of Spark's."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="there is no pyspark here: `make test` installs it")

from holdfast.client import Security
from holdfast.spark import options as source
from holdfast.spark.errors import OptionError
from holdfast.spark.login import options_of
from holdfast.spark.sink import options as sink

NEEDED = {"servers": "127.0.0.1:5672", "log": "trades"}


@pytest.mark.parametrize("parse", [source.parse, sink.parse])
def test_files_say_who_it_is_in_whichever_process(parse: object, tmp_path: Path) -> None:
    assert callable(parse)
    password, token = tmp_path / "password", tmp_path / "token"
    password.write_text("pencil\n")
    token.write_text("a.b.c\n")
    given = NEEDED | {"ca": "ca.pem", "user": "ann", "passwordFile": str(password)}
    security = pickle.loads(pickle.dumps(parse(given, streaming=False))).security
    assert (security.uses_tls, security.user, security.read_password()) == (True, "ann", "pencil")
    security = pickle.loads(pickle.dumps(parse(NEEDED | {"tokenFile": str(token)}, streaming=False))).security
    token.write_text("renewed\n")
    assert (security.uses_tls, security.read_token()) == (False, "renewed")


@pytest.mark.parametrize("parse", [source.parse, sink.parse])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"password": "pencil"}, "option password would be shown in Spark's plans"),
        ({"token": "a.b.c"}, "option token would be shown in Spark's plans"),
        ({"user": "ann"}, "options of the login: a password is missing"),
        ({"certKey": "key.pem"}, "options of the login: a key was given without the certificate"),
        ({"tls": "perhaps"}, "option tls is true or false, not 'perhaps'"),
    ],
)
def test_what_contradicts_itself_is_refused(parse: object, options: dict[str, str], said: str) -> None:
    assert callable(parse)
    with pytest.raises(OptionError, match=said):
        parse(NEEDED | options, streaming=False)


def test_what_a_command_was_given_becomes_options_that_say_the_same(tmp_path: Path) -> None:
    given = Security(
        ca=str(tmp_path / "ca.pem"), user="ann", password_file=str(tmp_path / "password"), mechanism="SCRAM-SHA-256"
    )
    assert source.parse(NEEDED | options_of(given), streaming=True).security == given
    assert options_of(Security()) == {}
    for secret in (Security(user="ann", password="pencil"), Security(token="a.b.c")):
        with pytest.raises(OptionError, match="logs in by files"):
            options_of(secret)
