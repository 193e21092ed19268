"""Records of a transaction count once, whoever commits it, and those of other daemons not at all."""

from __future__ import annotations

import msgspec

from tests.coordinator.values import committable, completed
from tidegate.coordinator.types import Committable
from tidegate.daemon.commit_account import CommitAccount
from tidegate.ids import Attempt

FIRST, SECOND = (committable(number, producer_id=100 + number, records=10 * number) for number in (1, 2))
OWN = FIRST.attempt


def of_attempt(number: int, one: Committable = FIRST) -> Committable:
    return msgspec.structs.replace(one, attempt=Attempt(number))


def test_committables_of_an_older_attempt_were_counted_in_its_time() -> None:
    account = CommitAccount()
    assert account.completed(completed(2, attempt=OWN, committables=[of_attempt(OWN - 1), SECOND])) == {"out": 20}


def test_what_the_end_of_an_attempt_commits_counts_unless_its_checkpoint_has_completed() -> None:
    account = CommitAccount()
    account.begin(OWN)
    assert account.completed(completed(1, attempt=OWN, committables=[FIRST])) == {"out": 10}
    assert account.ended([FIRST, SECOND]) == {"out": 20}
    assert account.ended([FIRST, SECOND]) == {}, "the next recovery asks again"


def test_a_checkpoint_does_not_count_what_the_recovery_before_it_has() -> None:
    account = CommitAccount()
    account.begin(OWN)
    assert account.ended([FIRST]) == {"out": 10}
    assert account.completed(completed(2, attempt=OWN, committables=[FIRST, SECOND])) == {"out": 20}


def test_what_another_daemon_has_decided_is_not_counted() -> None:
    """It may have committed and counted it: Kafka's answer is the same."""
    account = CommitAccount()
    assert account.ended([FIRST]) == {}
    account.begin(Attempt(OWN + 1))
    account.begin(Attempt(OWN + 2))
    assert account.ended([FIRST, of_attempt(OWN + 1, SECOND)]) == {"out": 20}
