"""Settings of the command line before its first argument: servers, from a file, the environment or the default.

Problem: nobody types `--server` fifty times a day, yet a command must never talk to a cluster its user did not mean.
Rule never broken: the nearest source wins (option, then HOLDFAST_SERVER, then the file, then a cluster that runs here,
then three ports; see `local_servers`), and a file with an unknown key or a wrong value stops the command. The file:
--config, or HOLDFAST_CONFIG, or ~/.config/holdfast.toml. A server may be the directory of a cluster on this machine,
which means all of its nodes.
Rejected: searching the working directory upwards for a file: the same command would mean different clusters.

    [client]
    servers = ["127.0.0.1:5672", "127.0.0.1:5673"]
    timeout_s = 30

    [zookeeper]                     # for servers = ["zk://..."], where ZooKeeper asks who is there
    auth_file = "/etc/zk-auth"      # one line, user:password
    ca_file = ""                    # given: TLS; cert_file and key_file if it asks for them
    verify_hostname = true

    [security]                      # each may be given as an option, too; see docs/operate/secure.md
    tls = true                      # or a file of authorities: ca = "/etc/holdfast/ca.pem"
    user = "ann"
    password_file = "/home/ann/.holdfast-password"
"""

from __future__ import annotations

import os
import tomllib
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec

from holdfast.cli.shared.errors import EXIT_USAGE, CliError
from holdfast.cli.shared.local_servers import CLUSTER_FILE, servers_of, usual_servers
from holdfast.client.transport.security.credentials import Security, token_in
from holdfast.client.transport.zookeeper.zookeeper_client import ZooKeeperLogin


class ClientSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    servers: list[str] = []
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 30.0


class ClientZooKeeperSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    auth_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify_hostname: bool = True

    def login(self) -> ZooKeeperLogin:
        """The files are read when ZooKeeper is to be asked."""
        for name in ("ca_file", "cert_file", "key_file"):
            if getattr(self, name) and not Path(getattr(self, name)).is_file():
                raise CliError(f"zookeeper.{name}: {getattr(self, name)} is not a file", exit_code=EXIT_USAGE)
        return ZooKeeperLogin(
            auth=_credentials(self.auth_file),
            ca_file=self.ca_file,
            cert_file=self.cert_file,
            key_file=self.key_file,
            verify_hostname=self.verify_hostname,
        )


class ClientSecuritySection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    tls: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""
    user: str = ""
    password_file: str = ""
    token_file: str = ""
    mechanism: str = ""

    def with_options(self, given: dict[str, Any]) -> Security:
        """Settings with options, which come first; a credential that is given as an option is the only one."""
        found = {name: getattr(self, name) for name in self.__struct_fields__}
        if given.get("user") or given.get("token") or given.get("cert"):
            found.update(user="", password_file="", token_file="", cert="", key="")
        found.update({name: value for name, value in given.items() if value})
        token_file, token = found.pop("token_file"), found.pop("token", "")
        if token.startswith("@"):
            token, token_file = "", token[1:]
        return Security(**found, token=partial(token_in, token_file) if token_file else token)


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    client: ClientSection = ClientSection()
    zookeeper: ClientZooKeeperSection = ClientZooKeeperSection()
    security: ClientSecuritySection = ClientSecuritySection()


def load(path: Path | None) -> Settings:
    """Read the settings file; a file that was named must exist, the default one need not."""
    named = path or (Path(os.environ["HOLDFAST_CONFIG"]) if os.environ.get("HOLDFAST_CONFIG") else None)
    candidate = named or Path("~/.config/holdfast.toml").expanduser()
    try:
        text = candidate.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, RuntimeError) as error:
        if named is None:
            return Settings()
        raise CliError(f"{candidate} cannot be read: {error}", exit_code=EXIT_USAGE) from error
    try:
        return msgspec.convert(tomllib.loads(text), Settings)
    except tomllib.TOMLDecodeError as error:
        raise CliError(f"{candidate} is not valid TOML: {error}", exit_code=EXIT_USAGE) from error
    except msgspec.ValidationError as error:
        raise CliError(
            f"{candidate}: {error}",
            advice='it may hold: [client] servers = ["host:port", ...], timeout_s = 30; [zookeeper] auth_file, ca_file'
            "; [security] tls, ca, cert, key, user, password_file, token_file, mechanism",
            exit_code=EXIT_USAGE,
        ) from error


def servers_from(options: tuple[str, ...], settings: Settings) -> list[str]:
    """The servers to try, nearest source first."""
    environment = os.environ.get("HOLDFAST_SERVER", "")
    found = list(options) or [word for word in [environment.strip()] if word] or settings.client.servers
    return [server for text in found for server in _named(text)] or usual_servers()


def _named(text: str) -> list[str]:
    """The servers that a user means by this: addresses, or the directory of a cluster."""
    if (Path(text) / CLUSTER_FILE).is_file() or ("/" in text and ":" not in text):
        return servers_of(Path(text))
    return text.replace(",", " ").split()


def _credentials(path: str) -> str:
    if not path:
        return ""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"zookeeper.auth_file: {path} cannot be read: {error}", exit_code=EXIT_USAGE) from error
    if len(lines) != 1 or not all(lines[0].partition(":")):
        raise CliError(f"zookeeper.auth_file: {path} must hold one line, user:password", exit_code=EXIT_USAGE)
    return lines[0]
