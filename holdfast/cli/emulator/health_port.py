"""`GET /health` as the emulator answers it: 200 while it serves, 503 before and in between."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from holdfast.cli.shared.errors import CliError

REQUEST_TIMEOUT_S = 5.0
ANSWERS = {
    200: {"status": "healthy", "message": "Service is healthy."},
    503: {"status": "unhealthy", "message": "Service is not healthy."},
}


class HealthPort:
    """`is_healthy` is asked at each request, in a thread of its own."""

    def __init__(self, host: str, port: int, is_healthy: Callable[[], bool]) -> None:
        class HealthHandler(BaseHTTPRequestHandler):
            timeout = REQUEST_TIMEOUT_S

            def do_GET(self) -> None:
                status = 404 if self.path.split("?")[0] != "/health" else 200 if is_healthy() else 503
                body = json.dumps(ANSWERS.get(status, {"message": "there is /health"})).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing: who waits asks every second."""

        try:
            self._server = ThreadingHTTPServer((host, port), HealthHandler)
        except OSError as error:
            raise CliError(
                f"the health port {port} cannot be had: {error}", advice="choose another: --health-port"
            ) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
