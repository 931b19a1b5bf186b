"""Parts of a client that no other process can have: its connections, and the thread of a synchronous one."""

from __future__ import annotations

from typing import NoReturn


class OneProcess:
    """A part that cannot be pickled, and so no client that has it."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a client cannot be pickled: its connections belong to this process; open a client in the process that"
            " uses it"
        )
