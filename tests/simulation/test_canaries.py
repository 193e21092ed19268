"""Every planted protocol bug is caught near a seed that is known to catch it; `make canaries` takes fresh ones."""

from __future__ import annotations

import pytest

from tests.depth import DEPTH
from tests.simulation.canaries import CANARIES, NEAR, hunt, known_seeds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


COSTLY = {
    "barrier_overtakes_a_barrier",
    "cancelled_checkpoint_completes",
    "carried_committables_dropped",
    "carried_transactions_of_a_final_entry_forgotten",
    "committables_of_a_failed_checkpoint_forgotten",
    "directives_forgotten_by_what_a_recovery_appends",
    "empty_interval_answered_before_the_older_proof",
    "ends_of_transactions_are_not_on_record",
    "fence_raises_the_epoch_just_twice",
    "first_sequence_proof_skips_a_partition",
    "idle_by_a_bare_timer",
    "idle_channel_holds_the_watermark_back",
    "idle_channels_passed_without_a_question",
    "idle_partition_holds_the_watermark_back",
    "new_partition_read_from_its_end",
    "newer_transactions_committed_behind_a_lost_one",
    "next_transaction_before_the_flush",
    "no_commit_at_recovery",
    "open_transactions_ended_by_the_mender",
    "position_of_one_cluster_restored_on_the_other",
    "producer_reused_after_a_timeout",
    "proof_accepts_fewer_records",
    "refusal_taken_for_an_end",
    "rows_in_flight_judged_by_the_watermark_after_them",
    "rows_in_flight_not_replayed",
    "rows_in_flight_restored_in_the_wrong_order",
    "rows_of_a_join_removed_one_bucket_early",
    "savepoint_written_before_its_output_is_committed",
    "snapshot_taken_when_it_is_uploaded",
    "state_of_a_step_written_after_the_barrier",
    "table_missing_from_the_snapshot",
    "time_limits_by_the_wall_clock",
    "timers_fire_before_rows_of_the_same_time",
    "timers_of_a_step_missing_from_the_snapshot",
    "topics_of_both_clusters_taken_for_one",
    "tracker_completes_early",
    "transactions_told_apart_by_their_producers_alone",
    "watermark_of_the_operator_not_restored",
    "watermark_passed_on_before_what_it_makes_due",
    "watermarks_of_partitions_not_restored",
    "writes_of_a_row_that_raises_kept",
}
"""More than half of the time of all: no seed is known that shows them in less than some seconds."""


def test_every_canary_has_a_known_seed_or_is_said_to_be_open() -> None:
    assert known_seeds().keys() == CANARIES.keys()
    assert known_seeds().keys() >= COSTLY


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.deep] if name in COSTLY else []) for name in sorted(CANARIES)],
)
def test_a_planted_bug_is_caught(name: str) -> None:
    found = hunt(name, known_seeds()[name], NEAR, without=DEPTH > 1)
    assert found, f"{name} is not caught near its known seed any more: make canaries ARGS='--learn {name}'"
    print(f"caught at seed {found[0].seed}: {found[0].problem}")
