"""How a command learns who it is: options, then the settings file."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.shared import settings
from holdfast.client import ConfigurationError, Security


def section(tmp_path: Path, text: str) -> settings.ClientSecuritySection:
    path = tmp_path / "holdfast.toml"
    path.write_text(f"[security]\n{text}")
    return settings.load(path).security


def test_the_file_says_who_and_an_option_says_it_nearer(tmp_path: Path) -> None:
    found = section(tmp_path, 'ca = "ca.pem"\nuser = "ann"\npassword_file = "secret"\n')
    assert found.with_options({}) == Security(ca="ca.pem", user="ann", password_file="secret")
    assert found.with_options({"user": "bob", "password_file": "p"}) == Security(
        ca="ca.pem", user="bob", password_file="p"
    )
    assert found.with_options({"token": "t"}) == Security(ca="ca.pem", token="t")
    assert found.with_options({"cert": "c"}) == Security(ca="ca.pem", cert="c")


def test_a_token_in_a_file_is_read_each_time(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    found = settings.ClientSecuritySection().with_options({"token": f"@{tmp_path / 'token'}"})
    assert found.read_token() == "one"
    (tmp_path / "token").write_text("two\n")
    assert found.read_token() == "two"


@pytest.mark.parametrize(
    "wrong",
    [
        {"user": "ann"},
        {"password": "x"},
        {"user": "ann", "password": "x", "password_file": "y"},
        {"user": "ann", "password": "x", "token": "t"},
        {"key": "k"},
    ],
)
def test_half_a_credential_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        Security(**wrong).check()  # type: ignore[arg-type]


def test_no_credential_is_shown_by_accident() -> None:
    shown = repr(Security(user="ann", password="secret")) + repr(Security(token="secret"))
    assert "secret" not in shown
