"""How much of the journal is read: all of it once, then what is new."""

from __future__ import annotations

import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, OTHER, completed
from tests.journal.test_journal import journal, owned
from tidegate.coordinator.entries import JournalRefused
from tidegate.ids import JournalSequence
from tidegate.storage.names import journal_name


def test_a_daemon_reads_each_entry_once_however_many_attempts_fail_before_a_checkpoint() -> None:
    """Each attempt read all takeovers three times: with 500 of them a store of 20 ms a request took 10 s each time."""
    storage = FakeStorage()
    owned(storage, OTHER).append_checkpoint(completed(1))
    for _ in range(5):
        journal(storage).take_over(IDENTITY, 2)
    one = journal(storage)
    one.read()
    storage.read.clear()
    for _ in range(5):
        assert one.read() == journal(FakeStorage(storage.shared)).read()
        one.take_over(IDENTITY, 3)
        one.clean_up()
        assert one.read() == one.state == journal(FakeStorage(storage.shared)).read()
    newest = [journal_name(JournalSequence(6 + number)) for number in range(6)]
    assert set(storage.read) == set(newest), "the newest alone, which says that there is nothing else to know"
    other = journal(FakeStorage(storage.shared), OTHER)
    other.take_over(IDENTITY, 4)
    assert one.read() == other.state


def test_a_missing_entry_is_refused_also_where_the_daemon_has_read_it() -> None:
    storage = FakeStorage()
    one = owned(storage, retained=3)
    for number in (1, 2, 3):
        one.append_checkpoint(completed(number))
    one.read()
    storage.delete(journal_name(JournalSequence(2)))
    with pytest.raises(JournalRefused, match=r"000000000002.json is missing"):
        one.read()
