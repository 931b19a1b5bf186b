"""Links of pages that lead out of docs/, into the repository, as the site has them.

The problem: pages name examples, READMEs of roles and results of benchmarks, which a reader of the repository finds
beside them; a site has only what lies in docs/. The rule: a link works in both. So each file that a page links to
becomes a page beneath `repository/`, as do those that these link to, and a link that leads nowhere fails the build.
Rejected: links to a hosted repository. The site is read without a network.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
BENEATH = "repository"
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".sh": "sh"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of the repository that pages link to."""
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    known = set(waiting)
    while waiting:
        path = waiting.pop()
        for target in outside_links(text_of(path), path):
            if target not in known and (ROOT / target).exists():
                known.add(target)
                waiting.append(target)
                files.append(File.generated(config, uri_of(target), content=text_of(target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead the links of a page to where the site has their targets."""
    uri = page.file.src_uri
    return relinked(markdown, origins(files).get(uri, f"docs/{uri}"), uri)


def origins(files: Files) -> dict[str, str]:
    """The path in the repository, for the URI of each generated page."""
    found = {}
    for file in files.documentation_pages():
        if file.src_uri.startswith(f"{BENEATH}/"):
            path = file.src_uri.removeprefix(f"{BENEATH}/")
            candidates = (path, path.removesuffix(".md"), path.removesuffix("/index.md"))
            found[file.src_uri] = next(one for one in candidates if (ROOT / one).exists())
    return found


def text_of(path: str) -> str:
    """Markdown of a file or folder of the repository."""
    place = ROOT / path
    if place.is_dir():
        names = sorted(one.name for one in place.iterdir() if one.is_file() and one.suffix in (*LANGUAGES, ".md"))
        return "\n".join([f"# {path}", "", *(f"- [{name}]({path.rpartition('/')[2]}/{name})" for name in names)])
    text = place.read_text(encoding="utf-8")
    if place.suffix == ".md":
        return text
    return f"# {path}\n\n```{LANGUAGES.get(place.suffix, 'text')}\n{text}```\n"


def uri_of(path: str) -> str:
    """The page of the site that holds this file or folder of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return f"{BENEATH}/{path}/index.md"
    return f"{BENEATH}/{path}" if path.endswith(".md") else f"{BENEATH}/{path}.md"


LINK = re.compile(r"(?P<code>^```.*?^```)|\]\((?P<path>[^)\s#]+)(?P<fragment>#[^)\s]*)?\)", re.DOTALL | re.MULTILINE)


def outside_links(text: str, origin: str) -> list[str]:
    """The paths outside docs/ to which a text leads that stands at `origin`."""
    found = [resolved(one["path"], origin) for one in LINK.finditer(text) if one["path"] and "://" not in one["path"]]
    return [path for path in found if not path.startswith(("docs/", ".."))]


def relinked(text: str, origin: str, uri: str) -> str:
    """The text with its links as they are to be on the page `uri`."""

    def lead(one: re.Match[str]) -> str:
        path = one["path"]
        if not path or "://" in path:
            return one[0]
        target = resolved(path, origin)
        if not (ROOT / target).exists():
            return one[0]  # MkDocs says which page it is, and fails
        return f"]({posixpath.relpath(uri_of(target), posixpath.dirname(uri) or '.')}{one['fragment'] or ''})"

    return LINK.sub(lead, text)


def resolved(path: str, origin: str) -> str:
    """The path from the root of the repository. A page for a folder counts as one beside it."""
    return os.path.normpath(posixpath.join(posixpath.dirname(origin), path))
