"""The module that writes all files of a part of a role in one call: as idempotent as the modules it stands for."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.ansible.playbooks import COLLECTION, ansible_directory

pytestmark = [
    pytest.mark.skipif(ansible_directory() is None, reason="no Ansible here: make test brings it"),
    pytest.mark.skipif(os.geteuid() != 0, reason="files are given to root: that needs root"),
]

RUN = """
import json, runpy, sys
from ansible.module_utils.testing import patch_module_args
with patch_module_args(json.loads(sys.argv[2])):
    runpy.run_path(sys.argv[1], run_name="__main__")
"""


def files(check: bool = False, **wanted: Any) -> dict[str, Any]:
    directory = ansible_directory()
    assert directory is not None
    arguments = json.dumps({**wanted, "_ansible_check_mode": check, "_ansible_diff": True})
    done = subprocess.run(
        [str(directory / "python"), "-c", RUN, str(COLLECTION / "library/holdfast_files.py"), arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_second_call_has_nothing_to_do(tmp_path: Path) -> None:
    configuration, link = tmp_path / "a/b/conf", tmp_path / "link"
    wanted = {
        "directories": [{"path": str(tmp_path / "a/b"), "mode": "0750"}],
        "files": [{"path": str(configuration), "content": "grüße\n", "mode": "0640"}],
        "links": [{"path": str(link), "target": str(configuration)}],
    }
    told = files(check=True, **wanted)
    assert told["written"] == [str(tmp_path / "a/b"), str(configuration), str(link)]
    assert list(tmp_path.iterdir()) == []
    assert files(**wanted)["written"] == told["written"]
    assert (configuration.read_text(), mode(configuration)) == ("grüße\n", 0o640)
    assert [mode(path) for path in (tmp_path / "a", tmp_path / "a/b")] == [0o750, 0o750]
    assert link.read_text() == "grüße\n"
    again = files(**wanted)
    assert not again["changed"]
    assert again["written"] == []


def test_it_shows_what_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "conf"
    path.write_text("old\n")
    wanted = {"files": [{"path": str(path), "content": "new\n"}]}
    assert [(diff["before"], diff["after"]) for diff in files(check=True, **wanted)["diff"]] == [("old\n", "new\n")]
    assert path.read_text() == "old\n"
    assert files(**wanted)["changed"]
    assert path.read_text() == "new\n"


def test_a_mode_that_somebody_changed_is_put_right(tmp_path: Path) -> None:
    path = tmp_path / "conf"
    wanted = {"files": [{"path": str(path), "content": "x", "mode": "0640"}]}
    files(**wanted)
    path.chmod(0o666)
    assert files(check=True, **wanted)["written"] == [str(path)]
    assert mode(path) == 0o666
    assert files(**wanted)["written"] == [str(path)]
    assert mode(path) == 0o640


def test_a_link_moves_and_nothing_else_is_replaced_by_one(tmp_path: Path) -> None:
    link, other = tmp_path / "current", tmp_path / "file"
    link.symlink_to("first")
    other.write_text("mine")
    assert files(links=[{"path": str(link), "target": "second"}])["changed"]
    assert os.readlink(link) == "second"
    refused = files(links=[{"path": str(other), "target": "second"}])
    assert "is no link" in refused["msg"]
    assert other.read_text() == "mine"
    assert "is a directory" in files(files=[{"path": str(tmp_path), "content": ""}])["msg"]
    assert "is no directory" in files(directories=[{"path": str(other / "below")}])["msg"]
