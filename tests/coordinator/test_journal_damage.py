"""Journal files that are damaged, missing or gone: what is passed over, what is refused, which ways out are named."""

from __future__ import annotations

import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME, OTHER, committable, completed, handle
from tests.journal.test_journal import entries, journal, owned
from tidegate.coordinator.entries import JournalRefused, decode_entry
from tidegate.ids import JournalSequence
from tidegate.journal.journal import Journal, JournalLost
from tidegate.storage.base import ObjectCorrupt
from tidegate.storage.checksum import seal
from tidegate.storage.names import journal_name


def test_a_missing_entry_is_refused_by_name() -> None:
    storage = FakeStorage()
    one = owned(storage, retained=3)
    for number in (1, 2, 3):
        one.append_checkpoint(completed(number))
    storage.delete(journal_name(JournalSequence(2)))
    with pytest.raises(JournalRefused, match=r"memory/journal/000000000002.json is missing.*backup") as caught:
        journal(storage).read()
    assert caught.value.exit_code == 4
    assert "start with --restore 3 --repeat-output" in caught.value.message


def test_a_damaged_entry_in_front_of_a_whole_checkpoint_is_passed_over_and_told() -> None:
    """Every entry says all that counts; only the choice to go back to the older ones is lost."""
    storage = FakeStorage()
    one = owned(storage, retained=3)
    for number in (1, 2, 3):
        one.append_checkpoint(completed(number))
    damaged = journal_name(JournalSequence(2))
    storage.put(damaged, b"")
    other = journal(storage, OTHER)
    for _ in range(2):
        other.read()
        assert [damaged in text for text in other.passed_over] == [True], "as long as it counts"
    found = other.take_over(IDENTITY, 9)
    assert [entry.checkpoint.id for entry in found.retained] == [3]
    assert found.attempt == 2
    assert [damaged in text for text in other.passed_over] == [True]
    assert other.read() == other.state
    assert other.passed_over == (), "its own entry needs nothing that is so old"
    other.clean_up()
    again = journal(storage)
    assert again.read() == other.state
    assert again.passed_over == ()


def test_a_damaged_entry_behind_the_newest_checkpoint_or_of_it_is_refused() -> None:
    """An attempt has begun after it, but the checkpoint that it restored cannot be read."""
    storage = FakeStorage()
    one = owned(storage, retained=3)
    one.append_checkpoint(completed(1))
    one.append_checkpoint(completed(2))
    journal(storage, OTHER).take_over(IDENTITY, 9)
    storage.put(journal_name(JournalSequence(2)), b"")
    with pytest.raises(
        ObjectCorrupt, match=r"000000000002.json is corrupt.*The choices: restore the whole folder"
    ) as caught:
        journal(storage).read()
    assert "--restore 1" not in caught.value.message


def test_a_journal_that_is_gone_next_to_state_files_is_refused() -> None:
    """A takeover is written before any state: the pipeline has run, and nothing says what it has committed."""
    storage = FakeStorage()
    storage.put(handle(1).path, b"state")
    with pytest.raises(JournalRefused, match="journal has no entries, but state has files of checkpoints") as caught:
        journal(storage).take_over(IDENTITY, 9)
    assert caught.value.exit_code == 4


def test_an_entry_of_another_journal_is_refused_with_its_directory_and_the_ways_out() -> None:
    """A backup of one directory was put back over another one."""
    storage, other = FakeStorage(), FakeStorage()
    for one in (owned(storage), owned(other, OTHER)):
        one.append_checkpoint(completed(1))
        one.append_checkpoint(completed(2))
    name = journal_name(JournalSequence(2))
    storage.put(name, other.get(name))
    with pytest.raises(
        JournalRefused, match=r"^memory/journal/000000000002.json contradicts .* it is of journal"
    ) as caught:
        journal(storage).read()
    assert "The choices: restore the whole folder memory/journal from a backup" in caught.value.message
    assert caught.value.fields["name"] == name


def test_an_entry_of_a_newer_release_is_refused_with_its_directory() -> None:
    storage = FakeStorage()
    owned(storage)
    name = journal_name(JournalSequence(0))
    storage.put(name, seal(b'{"format_version": 99}\n'))
    with pytest.raises(JournalRefused, match=r"^memory/journal/000000000000.json has format version 99") as caught:
        journal(storage).read()
    assert (caught.value.fields["version"], caught.value.exit_code) == (99, 4)


@pytest.mark.parametrize("keep", [0, 1, 50, 200])
def test_a_truncated_entry_is_refused_by_name(keep: int) -> None:
    storage = FakeStorage()
    owned(storage)
    name = journal_name(JournalSequence(0))
    storage.put(name, storage.get(name)[:keep])
    with pytest.raises(ObjectCorrupt, match=name):
        journal(storage).read()


def test_a_damaged_newest_entry_tells_which_checkpoint_could_take_its_place_and_moving_it_away_does_that() -> None:
    storage = FakeStorage()
    one = owned(storage, retained=2)
    for number in (1, 2):
        one.append_checkpoint(completed(number))
    newest = journal_name(JournalSequence(2))
    storage.put(newest, b"")
    with pytest.raises(ObjectCorrupt, match=r"move this file away and start with --restore 1 --repeat-output; "):
        journal(storage).read()
    storage.delete(newest)
    found = journal(storage, OTHER).take_over(IDENTITY, 9)
    assert found.newest_checkpoint == completed(1)


def test_the_newest_entry_can_be_moved_away_although_the_older_ones_were_cleaned_up() -> None:
    """Without being asked that is refused: a file that was lost looks the same, and output would be written again."""
    storage = FakeStorage()
    one = owned(storage, retained=2)
    for number in (1, 2, 3, 4):
        one.append_checkpoint(completed(number))
    one.clean_up()
    storage.put(journal_name(JournalSequence(4)), b"")
    with pytest.raises(ObjectCorrupt, match=r"start with --restore 3 --repeat-output; "):
        journal(storage).read()
    storage.delete(journal_name(JournalSequence(4)))
    with pytest.raises(JournalRefused, match=r"000000000002.json is missing, .* start with --restore 3 --"):
        journal(storage).read()
    asked = Journal(storage, OTHER, retained=2, id_reserve=5, may_repeat=True)
    assert asked.take_over(IDENTITY, 9).newest_checkpoint == completed(3)
    assert asked.state.reserved_to > 5
    assert journal(storage).read() == asked.state


def test_a_damaged_newest_entry_without_a_whole_one_before_it_offers_no_way_around() -> None:
    """With one retained checkpoint the files before it may be gone: without it the pipeline would start over."""
    storage = FakeStorage()
    one = owned(storage, retained=1)
    for number in (1, 2):
        one.append_checkpoint(completed(number))
    one.clean_up()
    storage.put(journal_name(JournalSequence(2)), b"")
    with pytest.raises(ObjectCorrupt) as caught:
        journal(storage).read()
    assert "move this file away" not in caught.value.message
    storage.delete(journal_name(JournalSequence(2)))
    storage.put(handle(2).path, b"state")
    with pytest.raises(JournalRefused, match="journal has no entries"):
        journal(storage).read()


def test_every_flipped_bit_of_an_entry_is_found() -> None:
    storage = FakeStorage()
    owned(storage)
    whole = storage.get(journal_name(JournalSequence(0)))
    for position in range(len(whole)):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << (position % 8)
        with pytest.raises(ObjectCorrupt):
            decode_entry(JournalSequence(0), bytes(flipped))


def test_X03_a_journal_that_vanishes_between_a_look_and_the_takeover_is_not_begun_anew() -> None:
    """Its entries were there a moment ago, whatever Kafka knows, or may say, about the pipeline."""
    storage = FakeStorage()
    owned(storage, OTHER)
    starting = Journal(storage, ME, retained=2, id_reserve=5)
    assert starting.read().newest is not None
    storage.shared.objects.clear()
    storage.put(handle(1).path, b"of a slot of the other daemon")
    for look in (starting.read, lambda: starting.take_over(IDENTITY, 2)):
        with pytest.raises(JournalLost, match="that this daemon has read or written"):
            look()
    assert storage.list("journal/") == []


def test_X03_a_journal_that_vanishes_while_its_daemon_runs_is_noticed_at_the_next_append() -> None:
    """The volume is not mounted any more: an entry in an empty directory decides nothing."""
    storage = FakeStorage()
    one = Journal(storage, ME, retained=2, id_reserve=5)
    one.take_over(IDENTITY, 1)
    one.append_checkpoint(completed(1))
    storage.shared.objects.clear()
    with pytest.raises(JournalLost, match="unmounted, or the directory deleted"):
        one.append_checkpoint(completed(2, committables=[committable(2)]))
    assert storage.shared.objects == {}, "nobody can continue from there"
    assert JournalLost.exit_code == 4
    assert [one.transactional_id for one in one.maybe_listed] == [committable(2).transactional_id]


def test_X03_without_the_last_entry_nothing_is_appended_whatever_older_ones_are_left() -> None:
    storage = FakeStorage()
    one = owned(storage)
    one.append_checkpoint(completed(1))
    storage.delete(journal_name(JournalSequence(1)))
    with pytest.raises(JournalLost):
        one.append_checkpoint(completed(2))
    assert entries(storage) == [journal_name(JournalSequence(0))]


def test_X03_a_journal_that_vanishes_while_its_second_entry_is_written_is_noticed() -> None:
    storage = FakeStorage()
    one = owned(storage)
    storage.before_put = lambda name: storage.shared.objects.clear()
    with pytest.raises(JournalLost):
        one.append_checkpoint(completed(1))
    with pytest.raises(RuntimeError, match="does not own the journal"):
        one.append_checkpoint(completed(1))


def test_X03_a_journal_that_vanishes_between_two_attempts_is_not_begun_anew() -> None:
    storage = FakeStorage()
    one = Journal(storage, ME, retained=2, id_reserve=5)
    one.take_over(IDENTITY, 1)
    storage.shared.objects.clear()
    with pytest.raises(JournalLost):
        one.take_over(IDENTITY, 2)
    assert storage.shared.objects == {}
