"""The site of docs/ is built, strictly, and shows a page without fetching anything from elsewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("mkdocs", "material")
MISSING = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason="MkDocs with Material is not installed: make docs")

FETCHED = re.compile(r"<(?:script|img|iframe|source)[^>]*\bsrc=[\"']?(https?:)?//|<link[^>]*\bhref=[\"']?(https?:)?//")


def build(configuration: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(configuration)]
    return subprocess.run(
        [*command, "--site-dir", str(site)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", place)
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs").with_suffix(".html") for path in ROOT.glob("docs/**/*.md")]
    assert len(pages) > 30
    assert [page for page in pages if not (site / page).exists()] == []


def test_a_link_into_the_repository_leads_to_a_page_of_the_site(site: Path) -> None:
    text = (site / "clients" / "index.html").read_text(encoding="utf-8")
    assert "../repository/examples/index.html" in text
    example = (site / "repository" / "examples" / "produce_consume.py.html").read_text(encoding="utf-8")
    assert "ProducerClient" in example


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    wrong = [path for path in site.rglob("*.html") if FETCHED.search(path.read_text(encoding="utf-8"))]
    assert wrong == []
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert styles
    assert not [text for text in styles if re.search(r"(url\(|@import)[\"' ]*(https?:)?//", text)]


def test_search_works_on_pages_that_are_opened_as_files(site: Path) -> None:
    assert (site / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index = ")
    assert '<script src="../assets/iframe-worker.js">' in (site / "start" / "index.html").read_text(encoding="utf-8")
    assert (site / "assets" / "iframe-worker.js").exists()


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("[gone](nowhere.md)", "nowhere.md"),
        ("[gone](index.md#no-such-heading)", "no-such-heading"),
    ],
)
def test_a_broken_link_fails_the_build(tmp_path: Path, page: str, reason: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# One page\n\n{page}\n", encoding="utf-8")
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[0]
    text = text.replace("scripts/docs/site_hook.py", str(ROOT / "scripts" / "docs" / "site_hook.py"))
    (tmp_path / "mkdocs.yml").write_text(text, encoding="utf-8")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert reason in done.stdout + done.stderr


def test_a_page_that_the_navigation_lacks_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("index", "forgotten"):
        (tmp_path / "docs" / f"{name}.md").write_text(f"# {name}\n", encoding="utf-8")
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[0]
    text = text.replace("scripts/docs/site_hook.py", str(ROOT / "scripts" / "docs" / "site_hook.py"))
    (tmp_path / "mkdocs.yml").write_text(f"{text}\nnav:\n  - index.md\n", encoding="utf-8")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert "forgotten.md" in done.stdout + done.stderr
