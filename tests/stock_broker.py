"""A broker of stock python-qpid-proton in a thread, on a free loopback port; what it says is up to who inherits it."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Self

from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector

START_TIMEOUT_S = 60


class StockBroker(MessagingHandler):
    """Serves within a `with`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(prefetch=0, auto_accept=False, **options)
        self.port = 0
        self._ready = threading.Event()
        self._container = Container(self)
        self._injector = EventInjector()
        self._container.selectable(self._injector)
        self._thread = threading.Thread(target=self._container.run, daemon=True)
        self._acceptor: Any = None

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(START_TIMEOUT_S), "the test's broker did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._injector.trigger(ApplicationEvent("finish"))
        self._thread.join(START_TIMEOUT_S)

    def on_finish(self, _: Any) -> None:
        self._acceptor.close()
        self._container.stop()

    def on_start(self, event: Any) -> None:
        self._acceptor = event.container.listen("127.0.0.1:0")
        self.port = self._acceptor._selectable._delegate.getsockname()[1]
        self._ready.set()
