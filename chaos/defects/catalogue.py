"""The deliberate faults, each with the workload and the faults that reveal it and the checkers that must see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from chaos.defects import of_discovery, of_state, of_storage


@dataclass(frozen=True)
class Defect:
    """One deliberate fault. `seen_by`: at least one of these checkers must fail. `only_node` 0: all nodes have it."""

    apply: Callable[[], None]
    workload: str
    faults: tuple[str, ...]
    seen_by: tuple[str, ...]
    only_node: int = 0
    seconds: float = 12.0
    seed: int = 1


DEFECTS: Final[dict[str, Defect]] = {
    "nothing-is-synced": Defect(of_storage.nothing_is_synced, "W1", ("F9",), ("C1", "C21")),
    "failed-syncs-are-swallowed": Defect(
        of_storage.failed_syncs_are_swallowed, "W1", ("F20",), ("C1", "C21"), seconds=15.0
    ),
    "acknowledged-by-one": Defect(of_storage.acknowledged_by_one, "W1", ("F3",), ("C1", "C21")),
    "reads-are-not-confirmed": Defect(of_storage.reads_are_not_confirmed, "W2", ("F3",), ("C16",)),
    "the-end-is-one-short": Defect(of_storage.the_end_is_one_short, "W1", ("F2",), ("C16",)),
    "events-are-passed-over": Defect(of_storage.events_are_passed_over, "W2", ("F2",), ("C9", "C21")),
    "bytes-are-damaged": Defect(of_storage.bytes_are_damaged, "W1", ("F2",), ("C7",)),
    "records-are-reversed": Defect(of_storage.records_are_reversed, "W2", ("F2",), ("C4",)),
    "places-are-told-wrong": Defect(of_storage.places_are_told_wrong, "W2", ("F2",), ("C2", "C3")),
    "what-comes-again-is-stored-again": Defect(
        of_state.what_comes_again_is_stored_again, "W2", ("F4", "F7"), ("C3",), seconds=15.0
    ),
    "producers-are-forgotten-at-a-restart": Defect(
        of_state.producers_are_forgotten_at_a_restart, "W2", ("F18", "F1"), ("C18",), only_node=3
    ),
    "who-was-fenced-goes-on": Defect(of_state.who_was_fenced_goes_on, "W2", ("F16",), ("C5",)),
    "any-claim-commits": Defect(of_state.any_claim_commits, "W3", ("F16",), ("C10",), seconds=18.0),
    "groups-begin-behind-where-they-stand": Defect(
        of_state.groups_begin_behind_where_they_stand, "W3", ("F16",), ("C11",), seconds=15.0
    ),
    "open-transactions-are-visible": Defect(of_state.open_transactions_are_visible, "W4", ("F2",), ("C8", "C12")),
    "the-last-stable-offset-is-one-too-far": Defect(
        of_state.the_last_stable_offset_is_one_too_far, "W4", ("F2",), ("C8", "C12")
    ),
    "the-last-stable-offset-is-told-anyhow": Defect(
        of_state.the_last_stable_offset_is_told_anyhow, "W4", ("F2",), ("LSO",)
    ),
    "aborted-events-are-visible": Defect(of_state.aborted_events_are_visible, "W4", ("F2",), ("C8",)),
    "markers-are-misread": Defect(of_state.markers_are_misread, "W4", ("F2",), ("C8", "C12")),
    "metadata-are-read-anyhow": Defect(of_discovery.metadata_are_read_anyhow, "W1", ("F3",), ("C22",), seconds=15.0),
    "zookeeper-is-waited-for": Defect(of_discovery.zookeeper_is_waited_for, "W1", ("F14",), ("ZK",), seconds=15.0),
    "a-data-directory-does-not-know-itself": Defect(
        of_discovery.a_data_directory_does_not_know_itself, "W1", ("F14", "F1"), ("REG",), seconds=15.0
    ),
}
