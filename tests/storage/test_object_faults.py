"""A store that fails, hangs, loses answers, answers twice, and is late: what a call returns is true all the same."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.coordinator.values import IDENTITY, ME, OTHER, completed
from tests.support.object_server import BUCKET, ObjectServer, write_credentials
from tests.support.store_proxy import Asked, Fate, StoreProxy
from tidegate.coordinator.entries import Writer
from tidegate.errors import Superseded
from tidegate.journal.journal import AppendUnsettled, Journal
from tidegate.storage.base import ObjectMissing, StorageError, StorageOptions, is_lasting
from tidegate.storage.kinds.s3 import STORE
from tidegate.storage.objects.failures import RetryLimits
from tidegate.storage.objects.storage import LARGE_BYTES, RACERS, ObjectStorage

LIMITS = RetryLimits(request_s=1, deadline_s=30, large_request_s=4, bulk_request_s=1, first_pause_s=0.01)
PATIENT = RetryLimits(request_s=60, deadline_s=120, large_request_s=60, bulk_request_s=60)
"""A machine that is busy for a second makes no request twice."""
HASTY = RetryLimits(request_s=0.2, deadline_s=0.5, large_request_s=0.4, large_deadline_s=1, first_pause_s=0.01)


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with ObjectServer() as one:
        yield one


@pytest.fixture
def proxy(server: ObjectServer) -> Iterator[StoreProxy]:
    with StoreProxy(server.port) as one:
        yield one


Connect = Callable[..., ObjectStorage]


@pytest.fixture
def connect(proxy: StoreProxy, tmp_path: Path) -> Connect:
    options = StorageOptions(proxy.endpoint, credentials_file=str(write_credentials(tmp_path / "file")))

    def connected(limits: RetryLimits = LIMITS, bucket: str = BUCKET) -> ObjectStorage:
        return STORE.connect(f"s3://{bucket}/a", options, limits, look=False)

    return connected


@pytest.fixture
def storage(connect: Connect) -> ObjectStorage:
    return connect()


LOSSES = [Fate.FAIL, Fate.LOSE, Fate.TWICE, Fate.LATE, Fate.HANG]


@pytest.mark.parametrize("fate", LOSSES)
@pytest.mark.parametrize("times", [1, 2])
def test_the_creator_learns_that_it_has_won(
    server: ObjectServer, proxy: StoreProxy, storage: ObjectStorage, fate: Fate, times: int
) -> None:
    proxy.script(*[fate] * times, method="PUT")
    assert storage.put_if_absent("journal/1", b"mine")
    assert proxy.hurt[fate] >= (1 if fate is Fate.TWICE else times)
    proxy.land()
    assert server.objects["a/journal/1"].data == b"mine"


@pytest.mark.parametrize("fate", LOSSES)
def test_whoever_was_not_the_creator_learns_that_even_with_the_same_content(
    proxy: StoreProxy, storage: ObjectStorage, connect: Connect, fate: Fate
) -> None:
    assert connect().put_if_absent("journal/1", b"same")
    proxy.script(fate, method="PUT")
    assert not storage.put_if_absent("journal/1", b"same")


def test_two_whose_answers_are_all_lost_do_not_both_win(proxy: StoreProxy, connect: Connect) -> None:
    seen: set[str] = set()

    def lose_the_first_of_each(asked: object) -> Fate:
        writer = dict(getattr(asked, "headers", ())).get("x-amz-meta-tidegatewriter", "")
        first = bool(writer) and writer not in seen
        seen.add(writer)
        return Fate.LOSE if first else Fate.FORWARD

    proxy.rule = lose_the_first_of_each
    won: list[int] = []
    threads = [
        threading.Thread(target=lambda: won.extend(n for n in range(5) if connect().put_if_absent(f"{n}", b"same")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(won) == list(range(5))
    assert proxy.hurt[Fate.LOSE] == 20


def test_a_late_request_changes_nothing_that_was_created_since(
    server: ObjectServer, proxy: StoreProxy, connect: Connect
) -> None:
    proxy.script(*[Fate.LATE] * 1000, method="PUT")
    with pytest.raises(StorageError, match=r"cannot write journal/1: (?:the connection broke|no answer in time)"):
        connect(HASTY).put_if_absent("journal/1", b"late")  # which of them depends on the load of the machine
    proxy.script()
    assert connect().put_if_absent("journal/1", b"in time")
    assert set(proxy.land()) == {412}
    assert server.objects["a/journal/1"].data == b"in time"


def test_a_name_that_is_taken_and_gone_again_is_not_known(
    proxy: StoreProxy, server: ObjectServer, storage: ObjectStorage
) -> None:
    assert storage.put_if_absent("journal/1", b"others")

    def remove_before_the_look(asked: object) -> Fate:
        if getattr(asked, "method", "") == "HEAD":
            server.objects.clear()
        return Fate.FORWARD

    proxy.rule = remove_before_the_look
    with pytest.raises(StorageError, match="yet nothing is there"):
        storage.put_if_absent("journal/1", b"mine")


def test_two_creators_that_the_store_has_refused_both_try_again(
    proxy: StoreProxy, server: ObjectServer, storage: ObjectStorage
) -> None:
    server.conflicts = 2
    assert storage.put_if_absent("journal/1", b"mine")
    assert server.conflicts == 0


@pytest.mark.slow
@pytest.mark.parametrize("fate", [Fate.FAIL, Fate.LOSE, Fate.HANG, Fate.CUT])
def test_every_other_call_is_tried_again(proxy: StoreProxy, storage: ObjectStorage, fate: Fate) -> None:
    def hurt(times: int = 1) -> None:
        proxy.script(*[fate] * times)

    hurt()
    storage.put("x", b"one")
    hurt(2)
    assert storage.get("x") == b"one"
    hurt()
    assert storage.exists("x")
    hurt()
    assert storage.list("") == ["x"]
    hurt()
    storage.delete_all(["x", "y"])
    assert not storage.exists("x")
    hurt()
    storage.delete("x")
    assert proxy.hurt[fate] == 7


@pytest.mark.slow
def test_a_large_object_is_read_in_parts_each_of_which_is_tried_again(
    proxy: StoreProxy, server: ObjectServer, storage: ObjectStorage
) -> None:
    data = bytes(range(251)) * (3 * LARGE_BYTES // 251)
    storage.put("x", data)
    left = {Fate.CUT: 2, Fate.FAIL: 1}

    def hurt_some(asked: object) -> Fate:
        for fate, count in left.items():
            if "Range" in {name.title() for name, _ in getattr(asked, "headers", ())} and count:
                left[fate] -= 1
                return fate
        return Fate.FORWARD

    proxy.rule = hurt_some
    assert storage.get("x") == data
    assert left == {Fate.CUT: 0, Fate.FAIL: 0}


def test_parts_of_two_contents_are_never_joined(
    proxy: StoreProxy, server: ObjectServer, storage: ObjectStorage
) -> None:
    storage.put("x", b"1" * (LARGE_BYTES + 5))

    def replace_before_the_second_part(asked: object) -> Fate:
        if dict(getattr(asked, "headers", ())).get("range", "").startswith(f"bytes={LARGE_BYTES}"):
            server.objects["a/x"] = type(server.objects["a/x"])(b"2" * (LARGE_BYTES + 5), {})
        return Fate.FORWARD

    proxy.rule = replace_before_the_second_part
    with pytest.raises(StorageError, match="cannot read x: 412"):
        storage.get("x")


@pytest.mark.slow
@pytest.mark.parametrize("fate", [Fate.FAIL, Fate.HANG, Fate.LOSE])
def test_a_call_ends_in_bounded_time_and_may_be_repeated_by_the_next_start(
    proxy: StoreProxy, connect: Connect, fate: Fate
) -> None:
    proxy.rule = lambda asked: fate
    storage = connect(HASTY)
    for call in (lambda: storage.put_if_absent("x", b""), lambda: storage.get("x"), lambda: storage.list("")):
        began = time.monotonic()
        with pytest.raises(StorageError, match=r"tried for \d+ s") as caught:
            call()
        assert time.monotonic() - began < 10
        assert caught.value.retriable
        assert not is_lasting(caught.value)


@pytest.mark.slow
def test_a_slow_store_is_only_slow(proxy: StoreProxy, storage: ObjectStorage) -> None:
    proxy.delay_s = 0.1
    storage.probe()


def test_what_is_denied_is_reported_at_once_and_without_what_the_answer_repeats(
    proxy: StoreProxy, storage: ObjectStorage
) -> None:
    proxy.rule = lambda asked: Fate.DENY
    with pytest.raises(StorageError, match="cannot write x: 403 Forbidden: AccessDenied: no; allow these") as caught:
        storage.put("x", b"")
    assert proxy.hurt == {Fate.DENY: 1}
    assert "KEY-IN-ANSWER" not in caught.value.message
    assert is_lasting(caught.value)


def test_a_bucket_that_is_not_there_is_no_missing_object(connect: Connect) -> None:
    storage = connect(bucket="other")
    for call in (
        lambda: storage.get("x"),
        lambda: storage.put("x", b""),
        lambda: storage.put_if_absent("x", b""),
        lambda: storage.list(""),
        storage.look,
        storage.probe,
    ):
        with pytest.raises(
            StorageError, match=r"NoSuchBucket.*create it, or correct `checkpoints.directory`"
        ) as caught:
            call()
        assert not isinstance(caught.value, ObjectMissing)
        assert is_lasting(caught.value)


# -- the journal on such a store ---------------------------------------------------------------------------------------


def journal_of(storage: ObjectStorage, writer: Writer) -> Journal:
    return Journal(storage, writer, retained=2, id_reserve=5)


@pytest.mark.parametrize("fate", LOSSES)
def test_no_fault_of_the_store_costs_a_daemon_its_pipeline(proxy: StoreProxy, connect: Connect, fate: Fate) -> None:
    """Every conditional write is hurt once, and what was late arrives between the others."""
    seen: set[str] = set()

    def hurt_first(asked: Asked) -> Fate:
        writer = dict(asked.headers).get("x-amz-meta-tidegatewriter", "")
        if not writer or writer in seen:
            return Fate.FORWARD
        seen.add(writer)
        return fate

    proxy.rule = hurt_first
    mine = journal_of(connect(), ME)
    mine.take_over(IDENTITY, 1)
    for number in range(1, 4):
        mine.append_checkpoint(completed(number))
        mine.clean_up()
        proxy.land()
    assert mine.read().newest_checkpoint == completed(3)
    assert proxy.hurt[fate] == 4


def test_of_two_daemons_that_append_at_once_under_faults_one_goes_on(proxy: StoreProxy, connect: Connect) -> None:
    dice = random.Random(5)
    first, second = journal_of(connect(), ME), journal_of(connect(), OTHER)
    first.take_over(IDENTITY, 1)
    proxy.rule = lambda _: dice.choice([Fate.FORWARD, Fate.FORWARD, Fate.LOSE, Fate.TWICE, Fate.FAIL])
    ended: list[str] = []

    def append_until_superseded() -> None:
        try:
            for number in range(1, 10_000):
                first.append_checkpoint(completed(number))
        except (Superseded, AppendUnsettled) as error:
            ended.append(type(error).__name__)

    older = threading.Thread(target=append_until_superseded)
    older.start()
    second.take_over(IDENTITY, 2)
    for number in range(10_000, 10_004):
        second.append_checkpoint(completed(number))
    older.join(timeout=120)
    assert ended == ["Superseded"]
    assert second.read().newest_checkpoint == completed(10_003)


# -- stores that do not do what checkpoints need -----------------------------------------------------------------------


def test_a_store_that_ignores_conditions_is_refused(server: ObjectServer, connect: Connect) -> None:
    storage = connect(PATIENT)
    server.conditions = False
    with pytest.raises(StorageError, match="cannot keep checkpoints: it lets an existing object be created") as caught:
        storage.probe()
    assert is_lasting(caught.value)
    assert server.objects == {}


def test_a_store_that_ignores_conditions_only_when_several_write_is_refused(
    server: ObjectServer, connect: Connect
) -> None:
    storage = connect(PATIENT)
    server.looks_first = threading.Barrier(RACERS)
    with pytest.raises(StorageError, match=rf"\d of {RACERS} won"):
        storage.probe()


@pytest.mark.parametrize(
    ("quirk", "problem"),
    [
        ("replaces", "it lets an existing object be created again"),
        ("stale", "reads differently than written last"),
        ("not listed", "is not in the listing right after it was written"),
        ("kept", "is still there after it was deleted"),
    ],
)
def test_whatever_else_checkpoints_need_is_tried(
    server: ObjectServer, connect: Connect, quirk: str, problem: str
) -> None:
    storage = connect(PATIENT)
    server.quirk = quirk
    with pytest.raises(StorageError, match=f"cannot keep checkpoints: .*{problem}"):
        storage.probe()


def test_a_store_that_drops_attributes_is_safe_and_says_no_where_it_does_not_know(
    server: ObjectServer, proxy: StoreProxy, storage: ObjectStorage
) -> None:
    """The journal compares contents then; whoever goes by the answer alone does not take what may be another's."""
    server.keeps_attributes = False
    storage.probe()
    proxy.script(Fate.LOSE, method="PUT")
    assert not storage.put_if_absent("x", b"mine")
    assert storage.get("x") == b"mine"


def test_a_store_without_bulk_deletion_gets_single_ones(server: ObjectServer, storage: ObjectStorage) -> None:
    server.bulk_delete = False
    for _ in range(2):
        storage.put("x", b"")
        storage.delete_all(["x", "y"])
        assert server.objects == {}
    assert sum(request.startswith("POST") for request in server.requests) == 1, "it is not asked again"


def test_ten_thousand_are_listed_and_deleted_in_few_requests(server: ObjectServer, storage: ObjectStorage) -> None:
    storage.put("state/kept", b"")
    one = server.objects["a/state/kept"]
    names = [f"state/{number:05d}" for number in range(2500)]
    server.objects |= {f"a/{name}": one for name in names}
    server.requests.clear()
    assert storage.list("state/") == [*names, "state/kept"]
    storage.delete_all(names)
    assert len(server.requests) == 3 + 3
    assert list(server.objects) == ["a/state/kept"]
