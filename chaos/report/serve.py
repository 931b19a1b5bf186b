"""Web server for past runs on the local machine: a list, and the page of each."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from html import escape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

from chaos.archive import past
from chaos.report.page import STYLE


class _Pages(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.split("?")[0] != "/":
            super().do_GET()
            return
        content = index(past(Path(self.directory))).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: requests are of no interest."""


def server(below: Path, host: str, port: int) -> ThreadingHTTPServer:
    """Make the server without starting it; port 0 takes any free port."""
    return ThreadingHTTPServer((host, port), partial(_Pages, directory=str(below)))


def index(runs: list[dict[str, Any]]) -> str:
    rows = "".join(_row(one) for one in runs) or "<tr><td colspan=5>No run yet.</td></tr>"
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Chaos runs</title><style>{STYLE}</style><main><h1>Chaos runs</h1><table><tr><th>when</th><th>run</th>"
        f"<th>verdict</th><th>acknowledged</th><th>faults</th></tr>{rows}</table></main></html>"
    )


def _row(one: dict[str, Any]) -> str:
    plan, totals = one["plan"], one["totals"]
    when = datetime.fromtimestamp(one["begun_s"], UTC).strftime("%Y-%m-%d %H:%M:%S")
    named = f"{plan['workload']} under {', '.join(plan['faults'])}, seed {plan['seed']}, {plan['seconds']:g} s"
    link = quote(one["directory"]) + "/report.html"
    return (
        f"<tr><td>{when}</td><td><a href='{link}'>{escape(named)}</a><div class=sub>{escape(one['why'])}</div></td>"
        f"<td><span class='badge {one['result']}'>{one['result']}</span></td>"
        f"<td class=n>{totals['events acknowledged']:,}</td><td class=n>{totals['faults']}</td></tr>"
    )
