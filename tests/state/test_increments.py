"""Increments: a snapshot builds on a completed one, and whatever happens, what a checkpoint lists is all there is."""

from __future__ import annotations

import random

import pytest

from tests.state.driving import ALL, GROUPS, Files, content, make_memory, put
from tests.state.histories import play_history
from tidegate.ids import CheckpointId
from tidegate.state import increments
from tidegate.state.increments import JOINED_AT_ONCE, LAYERS_MAX, Increments
from tidegate.state.memory import MemoryState
from tidegate.state.snapshot import read_header

TEN = {f"key-{i}": i for i in range(10)}


def begun(retained: int = 1) -> tuple[MemoryState[str], Files]:
    """A state of ten keys, and what its first checkpoint, which is completed, has stored."""
    state, files = make_memory(retained=retained), Files()
    put(state, TEN)
    files.complete(state, 1)
    return state, files


def test_F28_restore_takes_the_newest_full_snapshot_then_the_increments_in_order() -> None:
    state, files = make_memory(), Files()
    put(state, {f"key-{i}": i for i in range(40)})
    assert files.complete(state, 1) == ("1.0",)
    put(state, {f"key-{i}": 100 for i in range(8)})
    assert files.complete(state, 2) == ("1.0", "2.0")
    put(state, {"key-0": 200, "new": 200})
    assert files.complete(state, 3) == ("1.0", "2.0", "3.0")
    assert files.read(3) == content(state)
    assert files.read(3)["key-0"] == 200
    assert files.read(2)["key-0"] == 100


def test_F28_only_changed_keys_are_in_an_increment() -> None:
    state, files = begun()
    put(state, {"key-3": 33, "key-4": 44})
    files.complete(state, 2)
    header, _ = read_header(files.data["2.0"])
    assert sum(group.entries for group in header.groups) == 2


def test_F28_increments_are_dealt_out_by_key_group() -> None:
    state, files = make_memory(), Files()
    put(state, {f"key-{i}": i for i in range(100)})
    files.complete(state, 1)
    put(state, {f"key-{i}": -i for i in range(0, 100, 5)})
    files.complete(state, 2)
    halves = [files.read(2, range(GROUPS // 2)), files.read(2, range(GROUPS // 2, GROUPS))]
    assert not halves[0].keys() & halves[1].keys()
    assert halves[0] | halves[1] == content(state)


def test_F29_a_checkpoint_in_which_no_key_changed_writes_no_file() -> None:
    state, files = begun()
    assert files.complete(state, 2) == ("1.0",)
    assert files.complete(state, 3) == ("1.0",)
    assert files.written == {1: files.written[1], 2: 0, 3: 0}
    put(state, {"key-1": 5})
    assert files.complete(state, 4) == ("1.0", "4.0")


def test_F29_the_first_snapshot_after_a_restore_builds_on_the_restored_files() -> None:
    state, files = make_memory(), Files()
    put(state, {f"key-{i}": i for i in range(4000)})
    files.complete(state, 1)
    put(state, {f"key-{i}": -1 for i in range(1500)})
    files.complete(state, 2)
    again = make_memory()
    files.restore(again, 2)
    assert files.complete(again, 3) == ("1.0", "2.0")
    assert files.written[3] == 0
    put(again, {"key-3": 33})
    again.delete("key-4")
    assert files.complete(again, 4) == ("1.0", "2.0", "4.0")
    assert files.read(4) == content(again)
    put(again, {f"key-{i}": -1 for i in range(3000)})
    assert files.complete(again, 5) == ("5.0",), "with the restored increment it is as large as the state"


def test_F28_a_restored_base_outlives_snapshots_that_are_abandoned() -> None:
    _, files = begun()
    again = make_memory()
    files.restore(again, 1)
    put(again, {"key-3": 33})
    files.take(again, 2)
    files.drop(2)
    again.abandoned(CheckpointId(2))
    put(again, {"key-4": 44})
    assert files.complete(again, 3) == ("1.0", "3.0")
    assert files.read(3) == {**TEN, "key-3": 33, "key-4": 44}


@pytest.mark.parametrize("changed", [1, 50, 500])
def test_F29_k_of_10000_keys_write_bytes_for_k(changed: int) -> None:
    state, files = make_memory(), Files()
    put(state, {f"customer-{i:05}": i for i in range(10_000)})
    files.complete(state, 1)
    put(state, {f"customer-{i:05}": 10_000 + i for i in range(changed)})
    files.complete(state, 2)
    header_bytes = 1500
    assert files.written[2] - header_bytes <= 20 * changed
    assert files.written[1] > 10_000 * 15


def test_F29_what_many_checkpoints_write_grows_with_the_changes_and_not_with_the_state() -> None:
    seed = 4
    print(f"seed {seed}")
    draw, state, files = random.Random(seed), make_memory(), Files()
    names = [f"customer-{i:05}" for i in range(10_000)]
    put(state, dict.fromkeys(names, 0))
    files.complete(state, 0 + 1)
    for checkpoint in range(2, 102):
        put(state, dict.fromkeys(draw.sample(names, 50), checkpoint))
        files.complete(state, checkpoint)
        assert len(files.listed[checkpoint]) <= 10
    full = files.written[1]
    assert sum(files.written[checkpoint] for checkpoint in range(2, 102)) < 6 * full
    assert files.read(101) == content(state)


def test_an_increment_takes_in_those_before_it_that_are_not_much_larger() -> None:
    state, files = make_memory(), Files()
    put(state, {f"key-{i}": i for i in range(100)})
    files.complete(state, 1)
    put(state, {f"key-{i}": 2 for i in range(20)})
    assert files.complete(state, 2) == ("1.0", "2.0")
    put(state, {"a": 3})
    assert files.complete(state, 3) == ("1.0", "2.0", "3.0")
    put(state, {"b": 4})
    assert files.complete(state, 4) == ("1.0", "2.0", "4.0")
    assert files.read(4) == content(state)
    put(state, {f"key-{i}": 5 for i in range(20, 32)})
    assert files.complete(state, 5) == ("1.0", "5.0")
    assert files.read(5) == content(state)


@pytest.mark.parametrize(
    ("held", "first", "then"),
    [(10, range(8), range(10)), (100, range(70), range(70, 100))],
)
def test_a_full_snapshot_follows_when_the_increments_would_be_as_large(held: int, first: range, then: range) -> None:
    state, files = make_memory(), Files()
    put(state, {f"key-{i}": 1 for i in range(held)})
    files.complete(state, 1)
    put(state, {f"key-{i}": 2 for i in first})
    assert files.complete(state, 2) == ("1.0", "2.0")
    put(state, {f"key-{i}": 3 for i in then})
    assert files.complete(state, 3) == ("3.0",)


def test_files_of_a_checkpoint_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(increments, "TRACKED_MAX", 1)  # nothing can be taken in
    changes, most = Increments[str](1), 0
    for checkpoint in map(CheckpointId, range(1, 200)):
        changes.touch([checkpoint])
        extent = changes.begin(checkpoint, held=1000)
        most = max(most, len(extent.builds_on) + 1)
        changes.stored(checkpoint, [str(checkpoint)])
        changes.completed(checkpoint)
    assert most == LAYERS_MAX


def test_too_many_changed_keys_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(increments, "TRACKED_MAX", 5)
    state, files = make_memory(), Files()
    put(state, {f"key-{i}": i for i in range(100)})
    files.complete(state, 1)
    put(state, {f"key-{i}": 2 for i in range(6)})
    assert files.complete(state, 2) == ("2.0",)
    assert files.read(2) == content(state)


def test_too_many_changed_keys_of_several_checkpoints_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(increments, "TRACKED_MAX", 5)
    state, files = make_memory(retained=3), Files()
    put(state, {f"key-{i}": i for i in range(100)})
    files.complete(state, 1)
    put(state, {f"key-{i}": 2 for i in range(3)})
    assert files.take(state, 2) == ("1.0", "2.0")
    put(state, {f"key-{i}": 3 for i in range(3, 6)})
    assert files.take(state, 3) == ("3.0",)
    assert files.read(3) == content(state)


def test_of_increments_with_too_many_keys_to_be_remembered_the_small_ones_are_still_taken_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(increments, "TRACKED_MAX", 25)
    state, files = make_memory(), Files()
    put(state, {f"key-{i}": i for i in range(100)})
    files.complete(state, 1)
    put(state, {f"key-{i}": 2 for i in range(20)})
    files.complete(state, 2)
    put(state, {f"key-{i}": 3 for i in range(20, 28)})
    assert files.complete(state, 3) == ("1.0", "2.0", "3.0")  # 28 keys: those of the larger one are forgotten
    put(state, {f"key-{i}": 4 for i in range(28, 33)})
    assert files.complete(state, 4) == ("1.0", "2.0", "4.0")
    assert files.read(4) == content(state)


def test_F28_changes_of_a_checkpoint_that_was_given_up_are_in_the_next_one() -> None:
    state, files = begun()
    put(state, {"key-1": 21})
    files.take(state, 2)
    put(state, {"key-2": 32})
    state.abandoned(CheckpointId(2))
    files.drop(2)
    assert files.complete(state, 3) == ("1.0", "3.0")
    assert files.read(3) == content(state)


def test_F28_changes_are_kept_when_a_checkpoint_is_given_up_behind_the_next_one() -> None:
    state, files = begun(retained=3)
    put(state, {"key-1": 21})
    files.take(state, 2)
    put(state, {"key-2": 32})
    assert files.take(state, 3) == ("1.0", "3.0")
    state.abandoned(CheckpointId(2))
    files.drop(2)
    assert files.read(3) == content(state)
    state.abandoned(CheckpointId(3))
    files.drop(3)
    assert files.complete(state, 4) == ("1.0", "4.0")
    assert files.read(4) == content(state)


def test_a_snapshot_builds_on_nothing_that_is_in_flight() -> None:
    state, files = make_memory(retained=3), Files()
    put(state, TEN)
    assert files.take(state, 1) == ("1.0",)
    assert files.take(state, 2) == ("2.0",)
    state.completed(CheckpointId(1))
    put(state, {"key-1": 31})
    assert files.take(state, 3) == ("1.0", "3.0")


def test_with_as_many_in_flight_as_are_retained_a_snapshot_is_full() -> None:
    """Each of them may complete, and then the one to build on is deleted."""
    state, files = begun(retained=2)
    put(state, {"key-1": 1})
    assert files.take(state, 2) == ("1.0", "2.0")
    put(state, {"key-1": 2})
    assert files.take(state, 3) == ("1.0", "3.0")
    put(state, {"key-1": 3})
    assert files.take(state, 4) == ("4.0",)


def test_a_completion_that_was_not_told_is_made_up_for_by_the_next() -> None:
    state, files = begun(retained=2)
    put(state, {"key-1": 1})
    files.take(state, 2)
    put(state, {"key-2": 2})
    files.take(state, 3)
    state.completed(CheckpointId(3))
    put(state, {"key-3": 3})
    files.take(state, 4)
    assert files.listed[4] == ("1.0", "3.0", "4.0")
    assert files.read(4) == content(state)


def test_late_and_repeated_notices_change_nothing() -> None:
    state, files = begun(retained=2)
    put(state, {"key-1": 1})
    files.complete(state, 2)
    state.completed(CheckpointId(1))
    state.completed(CheckpointId(2))
    state.abandoned(CheckpointId(2))
    put(state, {"key-2": 2})
    assert files.take(state, 3)[0] == "1.0"
    assert files.read(3) == content(state)


def test_a_snapshot_that_comes_behind_a_newer_one_is_full_and_takes_nothing_away() -> None:
    state, files = begun(retained=3)
    put(state, {"key-1": 1})
    files.take(state, 3)
    put(state, {"key-2": 2})
    assert files.take(state, 2) == ("2.0",)
    files.complete(state, 4)
    assert files.read(4) == content(state)


def test_C26_a_savepoint_holds_everything_and_nothing_builds_on_it() -> None:
    state, files = begun()
    put(state, {"key-1": 1})
    assert files.take(state, 2, full=True) == ("2.0",)
    assert files.read(2) == content(state)
    files.drop(2)
    assert files.complete(state, 3) == ("1.0", "3.0")
    assert files.read(3) == content(state)


def test_the_first_snapshot_behind_a_restore_is_full() -> None:
    _, files = begun()
    again = make_memory()
    again.restore(files.of(1), ALL)
    assert files.complete(again, 2) == ("2.0",)
    assert files.read(2) == TEN


def test_a_completed_snapshot_whose_files_nobody_knows_is_an_error() -> None:
    changes = Increments[str](1)
    changes.begin(CheckpointId(1), held=0)
    with pytest.raises(RuntimeError, match="nothing was stored"):
        changes.completed(CheckpointId(1))


@pytest.mark.parametrize("retained", [1, 2, 3])
@pytest.mark.parametrize("seed", range(20))
def test_F28_F01_random_histories_restore_exactly_what_was_there(seed: int, retained: int) -> None:
    play_history(lambda retained: make_memory(retained=retained), seed, retained, steps=400)


# -- many keys: whoever begins a snapshot does not look at each --------------------------------------------------------


class Key:
    """Counts how often it is looked at."""

    looked_at = 0

    def __init__(self, number: int) -> None:
        self._number = number

    def __hash__(self) -> int:
        Key.looked_at += 1
        return self._number


def test_F23_to_begin_a_snapshot_looks_at_no_key_of_many() -> None:
    changes, many = Increments[str](2), JOINED_AT_ONCE + 1
    keys = [Key(number) for number in range(many)]
    changes.begin(CheckpointId(1), 10 * many)
    changes.stored(CheckpointId(1), ["1"])
    changes.completed(CheckpointId(1))
    changes.touch(keys)
    changes.begin(CheckpointId(2), 10 * many)
    changes.touch(keys[:-1])
    Key.looked_at = 0
    extent = changes.begin(CheckpointId(3), 10 * many)
    assert Key.looked_at == 0
    assert extent.keys is not None
    assert len(extent.keys) == 2 * many - 1
    assert list(extent.keys.joined()) == keys
    assert len(extent.keys) == many
    changes.abandoned(CheckpointId(2))
    changes.stored(CheckpointId(3), ["3"])
    changes.completed(CheckpointId(3))
    changes.touch(keys[:2])
    changes.begin(CheckpointId(4), 10 * many)
    Key.looked_at = 0
    changes.abandoned(CheckpointId(4))
    assert Key.looked_at == 0
    last = changes.begin(CheckpointId(5), 10 * many)
    assert (last.builds_on, last.keys is not None and list(last.keys.joined())) == (("1", "3"), keys[:2])


def test_large_increments_are_not_taken_in_and_small_ones_are() -> None:
    held, changes = 100_000, Increments[str](1)
    sizes = []
    for number in range(1, 8):
        checkpoint = CheckpointId(number)
        changes.touch(range(number * 4000, number * 4000 + (4000 if number < 4 else 10)))
        extent = changes.begin(checkpoint, held)
        sizes.append(None if extent.keys is None else len(extent.keys))
        changes.stored(checkpoint, [str(number)])
        changes.completed(checkpoint)
    assert sizes == [None, 4000, 4000, 10, 20, 10, 40]


def test_what_is_changed_before_the_first_snapshot_is_not_remembered() -> None:
    changes = Increments[str](1)
    Key.looked_at = 0
    changes.touch([Key(number) for number in range(100)])
    assert Key.looked_at == 0
    assert changes.begin(CheckpointId(1), 100).keys is None


def test_F29_a_checkpoint_in_which_2_percent_changed_writes_less_than_5_percent() -> None:
    held, changed, changes, written = 100_000, 2000, Increments[str](1), list[int]()
    for number in range(1, 101):
        checkpoint = CheckpointId(number)
        first = number * changed % held
        changes.touch(range(first, first + changed))
        keys = changes.begin(checkpoint, held).keys
        written.append(held if keys is None else len(keys.joined()))
        changes.stored(checkpoint, [str(number)])
        changes.completed(checkpoint)
    increments = [size for size in written if size < held]
    assert len(increments) == 98
    assert max(increments) <= 0.05 * held
    assert sum(increments) / len(increments) <= 1.6 * changed
