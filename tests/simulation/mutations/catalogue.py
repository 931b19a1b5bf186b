"""Known holes, reopened one at a time: a net that does not notice them proves nothing.

Each mutation undoes one rule of `step`, the log store, the barrier or a state machine for the duration of a schedule
or a script. `BY_SCHEDULES` are noticed by random schedules; whatever stops one counts: a violation seen from outside,
or an assertion of the code itself. `BY_SCRIPTS` are noticed by a scenario script, whose trace comes out otherwise:
those cost time and not safety, or need a sequence that random search hits too seldom.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.simulation import chosen_plans
from tests.simulation.moving import holes, holes_of_targets
from tests.simulation.mutations import (
    holes_gateway,
    holes_groups,
    holes_identity,
    holes_quiescence,
    holes_raft,
    holes_state,
    holes_store,
    holes_streams,
    holes_transactions,
    holes_versions,
)
from tests.simulation.plan import Plan

Apply = Callable[[], contextlib.AbstractContextManager[Any]]


@dataclass(frozen=True)
class Mutation:
    apply: Apply
    plan: Callable[[Plan], Plan]
    budget: int = 200
    """Schedules within which it must be noticed; most take fewer than ten."""


BY_SCHEDULES: dict[str, Mutation] = {
    "no-append-rewrite": Mutation(holes_raft.no_append_rewrite, chosen_plans.as_drawn),
    "no-vote-dedup": Mutation(holes_raft.no_vote_dedup, chosen_plans.contested_by_five),
    "no-commit-clamp": Mutation(holes_raft.no_commit_clamp, chosen_plans.replaying),
    "no-sync": Mutation(holes_store.no_sync, chosen_plans.crashing),
    "messages-before-sync": Mutation(holes_store.messages_before_sync, chosen_plans.crashing),
    "messages-before-drain": Mutation(holes_store.messages_before_drain, chosen_plans.killed),
    "votes-not-synced": Mutation(holes_store.votes_not_synced, chosen_plans.contested),
    "forgotten-vote": Mutation(holes_store.forgotten_vote, chosen_plans.contested),
    "forgotten-term": Mutation(holes_store.forgotten_term, chosen_plans.contested),
    "commit-before-own-sync": Mutation(holes_store.commit_before_own_sync, chosen_plans.alone),
    "hard-state-apart": Mutation(holes_store.hard_state_apart, chosen_plans.impatient),
    "checkpoint-too-new": Mutation(holes_store.checkpoint_too_new, chosen_plans.crashing),
    "no-checksums": Mutation(holes_store.no_checksums, chosen_plans.on_files),
    "no-watermark": Mutation(holes_store.no_watermark, chosen_plans.on_files),
    "first-turn-not-synced": Mutation(holes_store.first_turn_not_synced, chosen_plans.contested, 2000),
    "directory-not-synced": Mutation(holes_store.directory_not_synced, chosen_plans.on_files_without_power),
    "seal-not-synced": Mutation(holes_store.seal_not_synced, chosen_plans.on_files_without_power, 2000),
    "watermark-before-sync": Mutation(holes_store.watermark_before_sync, chosen_plans.on_files_without_power),
    "records-say-nothing-of-durability": Mutation(
        holes_store.records_say_nothing_of_durability, chosen_plans.on_files_with_old_watermarks
    ),
    "failed-sync-not-noted": Mutation(holes_store.failed_sync_not_noted, chosen_plans.on_failing_disks),
    "outcome-without-term": Mutation(holes_raft.outcome_without_term, chosen_plans.as_drawn),
    "unknown-is-discarded": Mutation(holes_raft.unknown_is_discarded, chosen_plans.as_drawn),
    "reads-not-confirmed": Mutation(holes_raft.reads_not_confirmed, chosen_plans.as_drawn),
    "reads-by-one-member": Mutation(holes_raft.reads_by_one_member, chosen_plans.as_drawn),
    "reads-before-applied": Mutation(holes_raft.reads_before_applied, chosen_plans.slowly_applying),
    "snapshot-index-too-high": Mutation(holes_raft.snapshot_index_too_high, chosen_plans.replacing),
    "shortened-duplicate-window": Mutation(holes_state.shortened_duplicate_window, chosen_plans.as_drawn),
    "known-by-digests-only": Mutation(holes_state.known_by_digests_only, chosen_plans.as_drawn),
    "ownership-checked-only-at-attach": Mutation(holes_state.ownership_checked_only_at_attach, chosen_plans.as_drawn),
    "company-forgotten": Mutation(holes_state.company_forgotten, chosen_plans.in_bulk),
    "producers-not-in-checkpoint": Mutation(holes_state.producers_not_in_checkpoint, chosen_plans.crashing),
    "restored-without-digests": Mutation(holes_state.restored_without_digests, chosen_plans.crashing),
    "no-dedup": Mutation(holes_state.no_dedup, chosen_plans.as_drawn),
    "gaps-allowed": Mutation(holes_state.gaps_allowed, chosen_plans.as_drawn),
    "no-fencing": Mutation(holes_state.no_fencing, chosen_plans.as_drawn),
    "any-claim-commits": Mutation(holes_state.any_claim_commits, chosen_plans.as_drawn),
    "requests-not-remembered": Mutation(holes_state.requests_not_remembered, chosen_plans.as_drawn),
    "local-clock-in-apply": Mutation(holes_state.local_clock_in_apply, chosen_plans.as_drawn),
    "replaced-member-votes": Mutation(holes_state.replaced_member_votes, chosen_plans.replacing),
    "own-word-not-verified": Mutation(holes_raft.own_word_not_verified, chosen_plans.rolled_back),
    "mute-not-persisted": Mutation(holes_raft.mute_not_persisted, chosen_plans.readmitting),
    "match-of-the-wiped-kept": Mutation(holes_raft.match_of_the_wiped_kept, chosen_plans.readmitting),
    "regained-vote-in-the-same-term": Mutation(holes_raft.regained_vote_in_the_same_term, chosen_plans.readmitting),
    "mute-votes-in-any-group": Mutation(holes_raft.mute_votes_in_any_group, chosen_plans.replacing),
    "mute-of-two-grants-nothing": Mutation(holes_raft.mute_of_two_grants_nothing, chosen_plans.replacing_of_two),
    "metadata-snapshot-without-state": Mutation(
        holes_state.metadata_snapshot_without_state, chosen_plans.forgetting_metadata
    ),
    "own-clock-replicated": Mutation(holes_state.own_clock_replicated, chosen_plans.wrong_clocks),
    "leaps-are-lived": Mutation(holes_state.leaps_are_lived, chosen_plans.wrong_clocks),
    "starts-not-compared": Mutation(holes_identity.starts_not_compared, chosen_plans.impostors),
    "starts-without-marks": Mutation(holes_identity.starts_without_marks, chosen_plans.impostors),
    "starts-not-synced": Mutation(holes_identity.starts_not_synced, chosen_plans.impostors),
    "starts-remembered-in-memory-only": Mutation(
        holes_identity.starts_remembered_in_memory_only, chosen_plans.impostors
    ),
    "lonely-members-lead-at-once": Mutation(holes_identity.lonely_members_lead_at_once, chosen_plans.impostors),
    "lost-connections-appended-nothing": Mutation(
        holes_gateway.lost_connections_appended_nothing, chosen_plans.through_gateways
    ),
    "leaders-take-what-follows-a-refusal": Mutation(
        holes_gateway.leaders_take_what_follows_a_refusal, chosen_plans.through_gateways
    ),
    "streams-take-more-after-a-refusal": Mutation(
        holes_gateway.streams_take_more_after_a_refusal, chosen_plans.through_gateways
    ),
    "queues-do-not-wait-for-what-is-under-way": Mutation(
        holes_gateway.queues_do_not_wait_for_what_is_under_way, chosen_plans.through_gateways
    ),
    "queues-repeat-the-unknown": Mutation(holes_gateway.queues_repeat_the_unknown, chosen_plans.through_gateways),
    "queues-forget-the-order": Mutation(holes_gateway.queues_forget_the_order, chosen_plans.through_gateways),
    "readers-begin-one-later": Mutation(holes_gateway.readers_begin_one_later, chosen_plans.through_gateways),
    **{
        name: Mutation(hole, chosen_plans.over_streams)
        for name, hole in (
            ("frames-lose-what-does-not-fit", holes_streams.frames_lose_what_does_not_fit),
            ("queues-turn-round", holes_streams.queues_turn_round),
            ("entries-stay-as-they-came", holes_streams.entries_stay_as_they_came),
            ("full-backlogs-lose-messages", holes_streams.full_backlogs_lose_messages),
            ("messages-outlive-their-stream", holes_streams.messages_outlive_their_stream),
            ("earlier-streams-are-heard", holes_streams.earlier_streams_are_heard),
        )
    },
    **{
        name: Mutation(hole, chosen_plans.moving)
        for name, hole in (
            ("in-force-when-committed", holes.in_force_when_committed),
            ("a-majority-of-the-union-is-enough", holes.a_majority_of_the_union_is_enough),
            ("the-new-set-alone-is-enough", holes.the_new_set_alone_is_enough),
            ("learners-count", holes.learners_count),
            ("births-are-ignored-in-votes", holes.births_are_ignored_in_votes),
            ("births-are-ignored-in-acks", holes.births_are_ignored_in_acks),
            ("changes-overtake-each-other", holes.changes_overtake_each_other),
            ("rows-are-not-stored", holes.rows_are_not_stored),
            ("rows-outlive-their-entries", holes.rows_outlive_their_entries),
            ("rows-are-trimmed-like-entries", holes.rows_are_trimmed_like_entries),
            ("snapshots-bring-no-configuration", holes.snapshots_bring_no_configuration),
            ("restarts-begin-with-the-founding-members", holes.restarts_begin_with_the_founding_members),
            ("births-are-not-stored", holes.births_are_not_stored),
            ("erased-when-the-move-begins", holes.erased_when_the_move_begins),
            ("metadata-that-are-behind-erase", holes.metadata_that_are_behind_erase),
            ("metadata-are-not-confirmed", holes.metadata_are_not_confirmed),
            ("moves-are-finished-before-they-are-committed", holes.moves_are_finished_before_they_are_committed),
            ("a-cancel-is-no-entry", holes.a_cancel_is_no_entry),
            ("a-cancel-takes-back-what-both-sets-decide", holes.a_cancel_takes_back_what_both_sets_decide),
            ("leaders-that-left-go-on", holes.leaders_that_left_go_on),
            ("learners-campaign", holes.learners_campaign),
            ("groups-rest-amid-a-move", holes.groups_rest_amid_a_move),
            ("learners-refuse-their-votes", holes.learners_refuse_their_votes),
            ("who-has-no-memory-leads-alone", holes.who_has_no_memory_leads_alone),
            ("strangers-are-not-heard", holes.strangers_are_not_heard),
        )
    },
    **{
        name: Mutation(hole, plan)
        for name, hole, plan in (
            (
                "founders-of-moved-groups-are-told-nothing",
                holes_of_targets.founders_of_moved_groups_are_told_nothing,
                chosen_plans.scaling,
            ),
            (
                "ends-are-reported-before-they-are-committed",
                holes_of_targets.ends_are_reported_before_they_are_committed,
                chosen_plans.rebalanced,
            ),
            ("births-are-used-twice", holes_of_targets.births_are_used_twice, chosen_plans.to_and_fro),
            ("state-is-kept-by-node", holes.state_is_kept_by_node, chosen_plans.to_and_fro),
            (
                "founders-are-mute-by-their-births",
                holes_of_targets.founders_are_mute_by_their_births,
                chosen_plans.rebalanced,
            ),
            ("copies-are-not-paced", holes.copies_are_not_paced, chosen_plans.slowly_copying),
            ("all-entries-count-as-new", holes.all_entries_count_as_new, chosen_plans.slowly_copying),
            ("older-reports-win", holes_of_targets.older_reports_win, chosen_plans.to_and_fro),
            ("lost-disks-end-no-moves", holes_of_targets.lost_disks_end_no_moves, chosen_plans.to_and_fro),
        )
    },
    **{
        name: Mutation(hole, chosen_plans.mixed)
        for name, hole in (
            ("a-feature-is-asked-in-apply", holes_versions.a_feature_is_asked_in_apply),
            ("the-unknown-is-refused-silently", holes_versions.the_unknown_is_refused_silently),
            ("features-are-used-before-their-activation", holes_versions.features_are_used_before_their_activation),
            ("activated-without-all-nodes", holes_versions.activated_without_all_nodes),
            ("data-are-opened-whatever-their-version", holes_versions.data_are_opened_whatever_their_version),
            ("peers-do-not-tell-what-is-active", holes_versions.peers_do_not_tell_what_is_active),
        )
    },
    "a-hint-tells-who-has-no-memory-of-two-voters": Mutation(
        holes.a_hint_tells_who_has_no_memory_of_two_voters, chosen_plans.moving_pairs, 400
    ),
    "silent-nodes-are-trusted": Mutation(holes_quiescence.silent_nodes_are_trusted, chosen_plans.quiet),
    "answers-wait-for-ever": Mutation(holes_quiescence.answers_wait_for_ever, chosen_plans.peaceful),
    "a-wiped-member-wakes-nobody": Mutation(holes_quiescence.a_wiped_member_wakes_nobody, chosen_plans.quiet),
    "pieces-not-verified": Mutation(holes_state.pieces_not_verified, chosen_plans.replacing),
    "snapshot-without-state": Mutation(holes_state.snapshot_without_state, chosen_plans.replacing),
    "snapshot-without-rows": Mutation(holes_state.snapshot_without_rows, chosen_plans.replacing),
}


@dataclass(frozen=True)
class TransactionMutation:
    """Noticed by schedules of the kind "transactions". Most take one; `outcomes_are_not_confirmed` needs a story of its
    own, test_deposed_coordinator.py."""

    apply: Apply
    late: str = ""
    """If not "": in schedules in which nothing goes wrong but that questions of this kind are a transaction late."""

    budget: int = 100


BY_TRANSACTIONS: dict[str, TransactionMutation] = {
    "markers-before-the-decision": TransactionMutation(holes_transactions.markers_before_the_decision),
    "complete-after-the-first-marker": TransactionMutation(holes_transactions.complete_after_the_first_marker),
    "markers-are-sent-once": TransactionMutation(holes_transactions.markers_are_sent_once),
    "undecided-is-aborted": TransactionMutation(holes_transactions.undecided_is_aborted),
    "the-epoch-stays-after-an-end": TransactionMutation(holes_transactions.the_epoch_stays_after_an_end),
    "a-new-holder-has-the-epoch-of-the-old-one": TransactionMutation(
        holes_transactions.a_new_holder_has_the_epoch_of_the_old_one
    ),
    "epochs-begin-again": TransactionMutation(holes_transactions.epochs_begin_again),
    "decisions-are-overruled": TransactionMutation(holes_transactions.decisions_are_overruled),
    "nobody-is-gone": TransactionMutation(holes_transactions.nobody_is_gone),
    "later-starts-are-no-news": TransactionMutation(holes_transactions.later_starts_are_no_news),
    "decisions-are-not-in-checkpoints": TransactionMutation(holes_transactions.decisions_are_not_in_checkpoints),
    "readers-pass-what-is-open": TransactionMutation(holes_transactions.readers_pass_what_is_open),
    "aborted-not-in-checkpoints": TransactionMutation(holes_transactions.aborted_not_in_checkpoints),
    "open-not-in-checkpoints": TransactionMutation(holes_transactions.open_not_in_checkpoints),
    "ended-not-in-checkpoints": TransactionMutation(holes_transactions.ended_not_in_checkpoints),
    "begun-without-events-not-in-checkpoints": TransactionMutation(
        holes_transactions.begun_without_events_not_in_checkpoints
    ),
    "a-late-begin-opens": TransactionMutation(holes_transactions.a_late_begin_opens),
    "markers-end-whatever-is-open": TransactionMutation(
        holes_transactions.markers_end_whatever_is_open, late="WriteMarker"
    ),
    "events-find-the-next-transaction": TransactionMutation(holes_transactions.events_find_the_next_transaction),
    "takeovers-doom-nothing": TransactionMutation(holes_transactions.takeovers_doom_nothing),
    "claims-do-not-wait-for-decisions": TransactionMutation(
        holes_transactions.claims_do_not_wait_for_decisions, late="EndTransaction"
    ),
    "positions-are-staged-without-a-word": TransactionMutation(holes_transactions.positions_are_staged_without_a_word),
    "lost-events-are-committed": TransactionMutation(holes_transactions.lost_events_are_committed),
    "coordinators-are-not-told-of-partitions": TransactionMutation(
        holes_transactions.coordinators_are_not_told_of_partitions
    ),
    "ends-stand-before-their-notes": TransactionMutation(holes_transactions.ends_stand_before_their_notes),
    "ends-are-asked-for-without-notes": TransactionMutation(holes_transactions.ends_are_asked_for_without_notes),
}


BY_GROUPS: dict[str, TransactionMutation] = {
    "last-batches-are-not-in-checkpoints": TransactionMutation(holes_groups.last_batches_are_not_in_checkpoints),
    "losers-live-on": TransactionMutation(holes_groups.losers_live_on),
    "prepared-is-committed": TransactionMutation(holes_groups.prepared_is_committed),
    "runs-that-were-succeeded-go-on": TransactionMutation(holes_groups.runs_that_were_succeeded_go_on),
    "pairs-of-members-are-used-again": TransactionMutation(holes_groups.pairs_of_members_are_used_again),
    "lost-events-are-prepared": TransactionMutation(holes_groups.lost_events_are_prepared),
}
"""Noticed by schedules of the kind "groups"."""


BY_LINKS: dict[str, TransactionMutation] = {
    "commits-do-not-wait-for-answers": TransactionMutation(holes_transactions.commits_do_not_wait_for_answers),
    "refused-events-are-committed-around": TransactionMutation(
        holes_transactions.refused_events_are_committed_around, budget=200
    ),
    "what-a-filter-holds-is-forgotten": TransactionMutation(holes_transactions.what_a_filter_holds_is_forgotten),
    "gateways-read-what-is-open": TransactionMutation(holes_transactions.gateways_read_what_is_open),
}
"""Noticed by schedules of the kind "transactions-by-links"."""


@dataclass(frozen=True)
class ScriptMutation:
    apply: Apply
    script: str


BY_SCRIPTS: dict[str, ScriptMutation] = {
    "terms-not-bounded": ScriptMutation(holes_raft.terms_not_bounded, "term-that-cannot-be"),
    "term-lead-not-bounded": ScriptMutation(holes_raft.term_lead_not_bounded, "term-that-cannot-be"),
    "replies-of-any-term": ScriptMutation(holes_raft.replies_of_any_term, "a1-acknowledgement-of-an-earlier-term"),
    "no-append-rewrite": ScriptMutation(holes_raft.no_append_rewrite, "a2-resent-prefix"),
    "no-commit-clamp": ScriptMutation(holes_raft.no_commit_clamp, "a3-sign-of-life-commits-nothing"),
    "checkpoint-not-verified": ScriptMutation(holes_raft.checkpoint_not_verified, "a4-damaged-checkpoint"),
    "no-vote-dedup": ScriptMutation(holes_raft.no_vote_dedup, "a5-one-voter-one-vote"),
    "commit-before-own-sync": ScriptMutation(holes_store.commit_before_own_sync, "a9-commit-waits-for-the-own-disk"),
    "outcome-without-term": ScriptMutation(holes_raft.outcome_without_term, "a13-leading-twice"),
    "reads-not-confirmed": ScriptMutation(holes_raft.reads_not_confirmed, "a16-deposed-leader"),
    "reads-by-answers-of-any-age": ScriptMutation(holes_raft.reads_by_answers_of_any_age, "read-and-late-answers"),
    "reads-by-one-member": ScriptMutation(holes_raft.reads_by_one_member, "read-and-late-answers"),
    "reads-from-another-term": ScriptMutation(holes_raft.reads_from_another_term, "read-across-leaderships"),
    "early-answer-to-repeats": ScriptMutation(holes_raft.early_answer_to_repeats, "repeated-append-is-synced-first"),
    "earlier-terms-commit-by-counting": ScriptMutation(
        holes_raft.earlier_terms_commit_by_counting, "fig-08-d-old-entries-are-not-committed-by-counting"
    ),
    "apply-again-from-the-start": ScriptMutation(
        holes_raft.apply_again_from_the_start, "l1-restart-behind-the-checkpoint"
    ),
    "no-loyalty": ScriptMutation(holes_raft.no_loyalty, "l3-loyal-followers"),
    "no-pre-vote": ScriptMutation(holes_raft.no_pre_vote, "l3-isolated-node-comes-back"),
    "no-answer-to-old-terms": ScriptMutation(holes_raft.no_answer_to_old_terms, "l4-higher-term-is-not-locked-out"),
    "stalls-not-noticed": ScriptMutation(holes_raft.stalls_not_noticed, "l5-stalled-loop"),
    "no-hint": ScriptMutation(holes_raft.no_hint, "l6-foreign-tail"),
    "no-window": ScriptMutation(holes_raft.no_window, "l11-window"),
    "proposals-during-transfer": ScriptMutation(holes_raft.proposals_during_transfer, "l12-transfer-under-load"),
    "other-versions-are-heard": ScriptMutation(holes_raft.other_versions_are_heard, "fig-10-two-majorities"),
    "unknown-is-discarded": ScriptMutation(holes_raft.unknown_is_discarded, "l16-outcomes"),
    "every-reset-counts": ScriptMutation(holes_raft.every_reset_counts, "late-rejection"),
    "success-moves-back": ScriptMutation(holes_raft.success_moves_back, "success-repeats-nothing"),
    "snapshot-drops-the-tail": ScriptMutation(holes_raft.snapshot_drops_the_tail, "snapshot-leaves-the-tail-behind-it"),
    "own-word-not-verified": ScriptMutation(holes_raft.own_word_not_verified, "rolled-back-member"),
    "mute-not-persisted": ScriptMutation(holes_raft.mute_not_persisted, "rolled-back-member"),
    "regained-vote-in-the-same-term": ScriptMutation(
        holes_raft.regained_vote_in_the_same_term, "wiped-member-votes-in-later-terms-only"
    ),
    "match-of-the-wiped-kept": ScriptMutation(
        holes_raft.match_of_the_wiped_kept, "wiped-member-acknowledged-more-than-it-has"
    ),
    "votes-while-mute": ScriptMutation(holes_raft.votes_while_mute, "wiped-member"),
    "mute-of-two-grants-nothing": ScriptMutation(holes_raft.mute_of_two_grants_nothing, "wiped-member-of-two"),
    "mute-of-two-compares-logs": ScriptMutation(
        holes_raft.mute_of_two_compares_logs, "wiped-member-of-two-with-more-than-the-other"
    ),
    "of-two-released-too-soon": ScriptMutation(holes_raft.of_two_released_too_soon, "wiped-members-of-two-in-turn"),
}
