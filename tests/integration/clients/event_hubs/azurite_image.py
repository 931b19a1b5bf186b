"""An image of Azurite, Microsoft's own stand-in for Blob Storage, for tests: Debian's node with the package from npm.

The Event Hubs module of Testcontainers starts Azurite beside the emulator. Its image is at a registry that is not asked
here, so it is laid out as ours is. Made once, outside the work tree.
"""

from __future__ import annotations

import fcntl
import json
import platform
import subprocess
import tempfile
from pathlib import Path

from tests.containers import Containers
from tests.integration.clients.npm import installed

SOURCE = Path(__file__).parent / "testcontainers" / "azurite"
WITHIN_S = 600.0
# What it tells its makers about its use is turned off: a test speaks to nobody.
START = '#!/bin/sh\nexec node /opt/azurite/node_modules/.bin/azurite --disableTelemetry "$@"\n'


def load(containers: Containers) -> str:
    """Load the image; return its name."""
    version = json.loads((SOURCE / "package.json").read_text())["dependencies"]["azurite"]
    name = f"azurite:{version}"
    containers.podman("import", "--change", "CMD azurite", str(_files()), name)
    return name


def _files() -> Path:
    """The files of the image, as an archive."""
    packages = installed(SOURCE)
    archive = packages.with_name(f"{packages.name}.tar")
    with packages.with_name("azurite-lock").open("w") as guard:  # several test processes share it
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not archive.exists():
            with tempfile.TemporaryDirectory(dir=packages.parent) as scratch:
                _lay_out(packages, Path(scratch)).rename(archive)
    return archive


def _lay_out(packages: Path, scratch: Path) -> Path:
    """Debian with node and the packages, as an archive in `scratch`."""
    (scratch / "azurite").write_text(START)
    (scratch / "azurite").chmod(0o755)
    (scratch / "apt.conf").write_text(
        subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=True).stdout
    )
    listed = (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d/debian.sources"))
    done = subprocess.run(
        [
            "mmdebstrap", "--quiet", "--variant=minbase", "--include=nodejs", f"--aptopt={scratch}/apt.conf",
            "--dpkgopt=path-exclude=/usr/share/doc/*", "--customize-hook=mkdir $1/opt/azurite",
            f"--customize-hook=copy-in {packages}/node_modules /opt/azurite",
            f"--customize-hook=copy-in {scratch}/azurite /usr/local/bin",
            platform.freedesktop_os_release()["VERSION_CODENAME"], str(scratch / "image.tar"),
            *(str(path) for path in listed if path.exists()),
        ],
        capture_output=True, text=True, timeout=WITHIN_S, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return scratch / "image.tar"
