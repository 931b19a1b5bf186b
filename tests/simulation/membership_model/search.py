"""Searches of a model: all states, the nearest first, or random walks where there are too many."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.membership_model.model import Broken, Scope
from tests.simulation.membership_model.transactions import TransactionScope

AnyScope = Scope | TransactionScope


@dataclass
class SearchResult:
    states: int = 0
    is_complete: bool = False
    broken: str = ""
    path: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        seen = f"{self.states} states, {'complete' if self.is_complete else 'not complete'}"
        return "\n  ".join([f"{seen}; {self.broken}", *self.path]) if self.broken else f"{seen}, nothing broken"


def at(scope: AnyScope, steps: Sequence[str]) -> Any:
    """The state after these steps, of which each is the beginning of what `MembershipModel` calls it."""
    model, state = scope.begun()
    for step in steps:
        able = [(label, after) for label, after in model.successors(state) if label.startswith(step)]
        assert len(able) == 1, f"{step!r} can happen in {len(able)} ways: {sorted(set(dict(model.successors(state))))}"
        state = able[0][1]
    return state


def explore(scope: AnyScope, most: int, steps: Sequence[str] = ()) -> SearchResult:
    """All states from there on, breadth first, up to so many."""
    model, first = scope.begun()[0], at(scope, steps)
    came: dict[Any, tuple[Any, str] | None] = {first: None}
    queue = deque([first])
    while queue and len(came) < most:
        state = queue.popleft()
        try:
            for label, after in model.successors(state):
                if after not in came:
                    came[after] = (state, label)
                    queue.append(after)
        except Broken as error:
            return SearchResult(len(came), broken=str(error), path=[*steps, *_path(came, state)])
    return SearchResult(len(came), is_complete=not queue)


def walk(scope: AnyScope, seed: int, most: int = 200) -> SearchResult:
    """One random way through the states."""
    (model, state), chance = scope.begun(), random.Random(seed)
    path: list[str] = []
    for _ in range(most):
        try:
            able = [(label, after) for label, after in model.successors(state) if after != state]
        except Broken as error:
            return SearchResult(len(path), broken=str(error), path=path)
        if not able:
            break
        label, state = chance.choice(able)
        path.append(label)
    return SearchResult(len(path))


def _path(came: dict[Any, tuple[Any, str] | None], state: Any) -> list[str]:
    labels: list[str] = []
    step = came[state]
    while step is not None:
        labels.append(step[1])
        step = came[step[0]]
    return labels[::-1]
