"""Stock clients of four makers log in over TLS, each with what its library knows; with a wrong credential each gets
the refusal that the specification has for it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import ConnectionException, Message, SSLDomain
from proton.utils import BlockingConnection

from holdfast.client.transport.security.credentials import Security
from tests.authority import Authority, CertificateFiles
from tests.integration.clients.stock.java_clients import MISSING, build
from tests.integration.clusters.cluster import Cluster, ClusterSettings, wait_until
from tests.unit.security.people import Provider

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent
WITHIN_S = 300
LOG = "events"


class Closed:
    """One node that lets nobody in without a credential, and what one needs to come in."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "authority")
        self.provider = Provider()
        self.ann: CertificateFiles = self.authority.issue("ann")
        server = self.authority.issue("node", ["localhost", "127.0.0.1"])
        keys = directory / "token-keys.pem"
        keys.write_bytes(self.provider.public)
        self.audit = directory / "audit.jsonl"
        listener = {
            "tls": "on",
            "cert_file": server.cert,
            "key_file": server.key,
            "client_ca_file": self.authority.ca,
        }
        more = f'[security]\naudit_file = "{self.audit}"\n\n[security.token]\nkeys_file = "{keys}"\naudience = "we"'
        settings = ClusterSettings(nodes=1, listener=listener, more=more, security=Security(ca=self.authority.ca))
        self.cluster = Cluster(directory / "cluster", settings)

    def prepare(self) -> None:
        """Who comes first is anonymous, on loopback; with the first user that is over."""
        cluster, ca = self.cluster, self.authority.ca
        cluster.start()
        cluster.create(LOG, 1)
        cluster.call(lambda admin: admin.add_user("root", "very secret", roles=["admin"]))
        cluster.settings.security = Security(ca=ca, user="root", password="very secret")
        cluster.call(lambda admin: admin.add_user("ann", "pencil"))
        cluster.call(lambda admin: admin.add_grant("ann", "publish", "log", LOG))

    @property
    def port(self) -> str:
        return self.cluster.address(1).rpartition(":")[2]

    def refusals(self) -> list[dict[str, Any]]:
        events = [json.loads(line) for line in self.audit.read_text().splitlines()]
        return [event for event in events if event["event"] == "refused"]


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    made = Closed(tmp_path_factory.mktemp("closed"))
    made.prepare()
    yield made
    complaints = made.cluster.complaints()
    made.cluster.close()
    assert not complaints


def said(*words: str) -> dict[str, Any]:
    """What a program prints in its one line."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, f"{words[0]} failed: {done.stderr}"
    return dict(json.loads(done.stdout.splitlines()[-1]))


def by_proton(closed: Closed, log: str = LOG, *, certificate: bool = False, **how: Any) -> None:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(closed.authority.ca)
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    if certificate:
        domain.set_credentials(closed.ann.cert, closed.ann.key, None)
    connection = BlockingConnection(f"amqps://localhost:{closed.port}", ssl_domain=domain, timeout=WITHIN_S, **how)
    try:
        connection.create_sender(log).send(Message(body="proton"))
    finally:
        connection.close()


def test_proton_by_password_and_by_certificate(closed: Closed) -> None:
    by_proton(closed, user="ann", password="pencil", allowed_mechs="PLAIN")
    by_proton(closed, certificate=True, allowed_mechs="EXTERNAL")
    for how in (
        {"user": "ann", "password": "pen", "allowed_mechs": "PLAIN"},
        {"allowed_mechs": "EXTERNAL"},  # without a certificate
        {"allowed_mechs": "ANONYMOUS"},
        {},
    ):
        with pytest.raises(ConnectionException, match="unauthorized-access"):
            by_proton(closed, **how)


@pytest.mark.skipif(None in map(shutil.which, ("node", "npm")), reason="node and npm are not installed")
def test_rhea_by_password(closed: Closed, rhea_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RHEA_HOME", str(rhea_home))
    words = ["node", str(HERE / "rhea" / "login.js"), "localhost", closed.port, closed.authority.ca]
    assert said(*words, "ann", "pencil", LOG) == {"sent": True}
    assert "unauthorized-access" in said(*words, "ann", "pen", LOG)["error"]
    assert "unauthorized-access" in said(*words, "ann", "pencil", "others")["error"]


@pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed")
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_qpid_jms_by_scram(closed: Closed, tmp_path: Path, mechanism: str) -> None:
    trust = str(tmp_path / "trust.p12")
    subprocess.run(
        ["keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", closed.authority.ca,
         "-keystore", trust, "-storetype", "PKCS12", "-storepass", "password"],
        capture_output=True, timeout=WITHIN_S, check=True,
    )  # fmt: skip
    words = ["java", "-Xmx96m", "-cp", build(), "holdfast.clients.Login", "localhost", closed.port, trust, mechanism]
    assert said(*words, "ann", "pencil", LOG) == {"sent": True}
    assert said(*words, "ann", "pen", LOG) == {"error": "JMSSecuritySaslException"}
    if mechanism == "PLAIN":
        assert said(*words, "ann", "pencil", "others") == {"error": "JMSSecurityException"}


@pytest.fixture(scope="module")
def go_login() -> str:
    """Built outside the work tree, once for what is in it."""
    sources = sorted((HERE / "go").iterdir())
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast-tests"
    program = caches / f"go-login-{digest}"
    if not program.exists():
        caches.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=caches) as scratch:
            built = Path(scratch) / "login"
            done = subprocess.run(
                ["go", "build", "-o", str(built), "."],
                cwd=HERE / "go", capture_output=True, text=True, timeout=WITHIN_S, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"go build failed:\n{done.stderr}"
            built.rename(program)
    return str(program)


@pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed")
def test_go_amqp_by_password_and_by_token(closed: Closed, go_login: str) -> None:
    words = [go_login, f"amqps://localhost:{closed.port}", closed.authority.ca]
    assert said(*words, "plain", "ann", "pencil", LOG) == {"sent": True}
    assert "SASL PLAIN auth failed" in said(*words, "plain", "ann", "pen", LOG)["error"]
    token, forged = closed.provider.token("ann", aud="we"), Provider().token("ann", aud="we")
    assert said(*words, "token", "ann", token, LOG) == {"sent": True}
    assert "error" in said(*words, "token", "ann", forged, LOG)
    wait_until(lambda: any(one["mechanism"] == "XOAUTH2" for one in closed.refusals()), "the audit log to say so")
