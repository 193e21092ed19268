"""What a start is refused for: the same verdict by `validate --connect` and by `run`, before Spark is started.

Journal, storage and broker are real; Spark is what must not be reached.
"""

from __future__ import annotations

import asyncio
import copy
import errno
import json
import os
import re
import socket
import threading
from collections.abc import Callable
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import confluent_kafka as ck
import pytest

from tests.checks.shop import SPARK, Document, Shop, set_in
from tests.conftest import TopicMaker
from tests.coordinator.values import on_cluster
from tests.sources.kafka_topics import produce_transaction
from tests.support import clients
from tests.waiting import wait_until
from tidegate.daemon.restore_point import RestoreOption, StartOptions
from tidegate.dev.broker import BrokerFailed
from tidegate.dev.broker.server import create_topics
from tidegate.ids import TopicPartition
from tidegate.journal.journal import Journal
from tidegate.kafka.transactions import TransactionClient

pytestmark = pytest.mark.slow


def test_a_pipeline_that_can_be_started_has_no_errors_and_comes_to_spark(shop: Shop) -> None:
    for _ in range(2):
        assert shop.validate() == (0, [])
        assert shop.run() == SPARK
        shop.checkpoint()


@pytest.mark.parametrize("kind", ["another topic", "another cluster", "a recreated topic"])
def test_X17_another_topic_or_cluster_is_refused_alike_before_spark(shop: Shop, topics: TopicMaker, kind: str) -> None:
    orders, before = shop.document["sources"]["orders"]["topic"], ""
    if kind == "another topic":
        shop.checkpoint()
        shop.document["sources"]["orders"]["topic"] = topics("other", 2)
    elif kind == "another cluster":
        shop.checkpoint(clusters=on_cluster({}, "other"))
    else:
        shop.checkpoint()
        before = topic_id(shop, orders)
        create_again(shop.bootstrap, orders)
        assert topic_id(shop, orders) != before
    words = {
        "another topic": f"no longer reads topic {orders}",
        "another cluster": "was taken on Kafka cluster other",
        "a recreated topic": f"topic {orders} was deleted and created again since the checkpoint (id {before}, now "
        f"{topic_id(shop, orders)})",
    }
    code, (problem,) = shop.validate()
    assert (code, shop.run()) == (4, 4)
    assert words[kind] in problem


def test_X17_input_that_retention_has_removed_is_told_alike_before_spark(shop: Shop) -> None:
    orders = shop.document["sources"]["orders"]["topic"]
    shop.checkpoint()
    client = clients.admin({"bootstrap.servers": shop.bootstrap})
    produce_transaction(shop.bootstrap, orders, [b"{}"] * 7)
    (removed,) = client.delete_records([ck.TopicPartition(orders, 0, 5)]).values()
    removed.result(30)
    code, (problem,) = shop.validate()
    assert (code, shop.run()) == (4, 4)
    assert f"sources.orders: {orders}[0]: offset 0 is gone, the log now starts at 5" in problem
    shop.document["sources"]["orders"]["on_lost_input"] = "continue"
    assert shop.validate() == (0, [])
    assert shop.run() == SPARK


def test_X17_input_that_is_gone_where_a_start_goes_back_to_is_told_alike_before_the_journal_changes(shop: Shop) -> None:
    orders = shop.document["sources"]["orders"]["topic"]
    produce_transaction(shop.bootstrap, orders, [b"{}"] * 7)
    shop.checkpoint()
    shop.checkpoint(at=6)
    client = clients.admin({"bootstrap.servers": shop.bootstrap})
    (removed,) = client.delete_records([ck.TopicPartition(orders, 0, 5)]).values()
    removed.result(30)
    journal = shop.directory / "checkpoints" / "journal"
    before = {entry.name: entry.read_bytes() for entry in journal.iterdir()}
    options = StartOptions(RestoreOption("10", repeat_output=True))
    code, (problem,) = shop.validate(options)
    assert (code, shop.run(options)) == (4, 4)
    assert f"sources.orders: {orders}[0]: offset 0 is gone, the log now starts at 5" in problem
    assert {entry.name: entry.read_bytes() for entry in journal.iterdir()} == before
    assert (shop.validate(), shop.run()) == ((0, []), SPARK)
    shop.document["sources"]["orders"]["on_lost_input"] = "continue"
    assert shop.validate(options) == (0, [])
    assert shop.run(options) == SPARK


def topic_id(shop: Shop, topic: str) -> str:
    with closing(TransactionClient({"bootstrap.servers": shop.bootstrap})) as client:
        return client.topics([topic])[topic].topic_id


def create_again(bootstrap: str, topic: str) -> None:
    """The broker may still be busy with the deletion for a moment."""
    admin = clients.admin({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic], operation_timeout=30)[topic].result(30)

    def created() -> bool:
        try:
            create_topics(bootstrap, {topic: 2})
        except BrokerFailed as refusal:
            assert "already exists" in str(refusal)
            return False
        return True

    wait_until(created, f"{topic} can be created again")


@pytest.mark.parametrize(
    "change",
    [
        set_in("parallelism", value=2),
        set_in("sources", "more", value={"topic": "", "schema": {"id": "bigint", "sku": "string", "n": "int"}}),
        set_in("sinks", "out", "key", value="sku"),
        set_in("sources", "orders", "start", value={0: 4711}),
    ],
)
def test_X17_a_change_that_the_checkpoints_take_is_taken_by_both(
    shop: Shop, topics: TopicMaker, change: Callable[[Document], None]
) -> None:
    """Among them a `start` that lies outside the topic: of a source with positions it says nothing any more."""
    shop.checkpoint()
    change(shop.document)
    if "more" in shop.document["sources"]:
        shop.document["sources"]["more"]["topic"] = topics("more", 1)
        shop.document["sinks"]["second"] = {"from": "more", "topic": topics("second", 1)}
    assert shop.validate() == (0, [])
    assert shop.run() == SPARK


def test_X17_a_refusal_is_not_overlooked_while_a_daemon_moves_the_journal_on(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.checkpoint()
    read = Journal.read

    def read_and_move(self: Journal) -> Any:
        state = read(self)
        monkeypatch.setattr(Journal, "read", read)
        thread = threading.Thread(target=lambda: asyncio.run(shop_again._checkpoint({})))
        thread.start()
        thread.join()
        monkeypatch.setattr(Journal, "read", read_and_move)
        return state

    shop_again = Shop(shop.directory, shop.bootstrap, "", "")
    shop_again.document = copy.deepcopy(shop.document)
    running = shop.directory / "running.yaml"
    running.write_text(json.dumps(shop_again.document))
    monkeypatch.setattr(shop_again, "write", lambda: running)
    shop.document["max_parallelism"] = 64
    monkeypatch.setattr(Journal, "read", read_and_move)
    code, (problem,) = shop.validate()
    assert code == 4
    assert "max_parallelism was 128" in problem


def test_X17_an_empty_directory_of_a_pipeline_that_kafka_knows_is_refused_alike_before_spark(shop: Shop) -> None:
    client = TransactionClient({"bootstrap.servers": shop.bootstrap})
    with closing(client):
        client.mirror_offsets(
            shop.document["name"], {TopicPartition(shop.document["sources"]["orders"]["topic"], 0): 7}
        )
    code, (problem,) = shop.validate()
    assert (code, shop.run()) == (4, 4)
    assert "--begin-anew" in problem
    assert shop.validate(StartOptions(begin_anew=True)) == (0, [])
    assert shop.run(StartOptions(begin_anew=True)) == SPARK


def test_X17_a_damaged_journal_is_refused_alike_before_spark(shop: Shop) -> None:
    shop.checkpoint()
    newest = max((shop.directory / "checkpoints" / "journal").iterdir())
    newest.write_bytes(newest.read_bytes()[:-7])
    code, (problem,) = shop.validate()
    assert (code, shop.run()) == (4, 4)
    assert newest.name in problem


def test_X17_a_journal_with_a_gap_is_taken_alike_with_the_words_that_its_refusal_names(shop: Shop) -> None:
    for _ in range(3):
        shop.checkpoint()
    sorted((shop.directory / "checkpoints" / "journal").iterdir())[-3].unlink()
    code, (problem,) = shop.validate()
    assert (code, shop.run()) == (4, 4)
    named = re.search("start with --restore ([0-9]+) --repeat-output", problem)
    assert named is not None
    options = StartOptions(RestoreOption(named[1], repeat_output=True))
    assert shop.validate(options) == (0, [])
    assert shop.run(options) == SPARK


def test_X17_every_missing_topic_and_everything_else_is_told_at_once(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.document["sources"]["orders"]["topic"] = "orders-typo"
    shop.document["sinks"]["out"]["topic"] = "out-typo"
    shop.document["checkpoints"]["transaction_timeout"] = "23h"
    code, problems = shop.validate()
    assert code == 2
    places = {problem.split(": ")[1] for problem in problems}
    assert places == {"checkpoints.transaction_timeout", "sources.orders.topic", "sinks.out.topic"}
    assert shop.run() == 2
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    errors = [line["message"] for line in lines if line["level"] == "error"]
    assert sorted(errors) == sorted(problems), "word for word what `validate --connect` says"


def test_X17_a_broker_that_is_not_there_is_waited_for_with_a_word_and_an_end(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tidegate.daemon.service.BROKERS_S", 2.5)
    monkeypatch.setattr("tidegate.cli.doctor.PATIENCE_S", 1.0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        shop.document["kafka"]["bootstrap.servers"] = address
        code, (problem,) = shop.validate()
        assert "kafka.bootstrap.servers" in problem
        capsys.readouterr()
        assert (code, shop.run()) == (1, 1), "it may come back"
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    said = [(line["level"], line["message"]) for line in lines if address in line["message"]]
    assert [level for level, _ in said] == ["warning", "error"]
    assert said[0][1].startswith(f"waiting for a broker, 2.5 s at most: {address}: Connection refused")
    assert f"no broker answers at {address} within 2s500ms" in said[1][1]


def same(text: str) -> str:
    """Without the name that every probe draws."""
    return re.sub(r"probe/[0-9a-f]+", "probe/...", text)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EACCES, 2),
        (errno.EROFS, 2),
        (errno.ENOTSUP, 2),
        (errno.EIO, 1),
        (errno.ENOSPC, 1),
        (errno.ESTALE, 1),
        (errno.EMFILE, 1),
    ],
)
def test_X22_a_directory_that_cannot_be_used_is_2_unless_it_may_pass(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int, code: int
) -> None:
    def fail(*_: object, **_named: object) -> None:
        raise OSError(number, os.strerror(number))

    for where in ("tidegate.storage.local.LocalStorage._prepare", "tidegate.storage.local.LocalStorage._write_synced"):
        with monkeypatch.context() as patch:
            patch.setattr(where, fail)
            found, (problem,) = shop.validate()
            assert (found, shop.run()) == (code, code)
        assert "checkpoints.directory: " in problem
        assert errno.errorcode[number] in problem
        said = [json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()]
        assert same(problem) in map(same, said)


@pytest.mark.parametrize("place", ["a-file/below", "a-file"])
def test_X22_a_path_that_is_no_directory_is_2(shop: Shop, place: str) -> None:
    (shop.directory / "a-file").write_text("in the way")
    shop.document["checkpoints"]["directory"] = f"file://{shop.directory}/{place}"
    code, (problem,) = shop.validate()
    assert (code, shop.run()) == (2, 2)
    assert "checkpoints.directory: " in problem


def test_X22_a_savepoint_that_cannot_be_read_is_2_and_no_place_in_the_file(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    (shop.directory / "a-file").write_text("in the way")
    for name in ("a-file/below", "nothing-there"):
        target = str(shop.directory / name)
        assert shop.run(StartOptions(RestoreOption(target))) == 2
        lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        (message,) = [line["message"] for line in lines if line["level"] == "error"]
        assert message.startswith(target)


def test_X22_a_work_directory_that_cannot_be_made_is_2_and_a_full_one_1(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, code in ((errno.EACCES, 2), (errno.ENOSPC, 1)):

        def fail(*_: object, number: int = number, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr("tidegate.spark.work_directory.tempfile.mkdtemp", fail)
            found, (problem,) = shop.validate()
            assert (found, shop.run()) == (code, code)
        assert "let TMPDIR name a directory" in problem


class _Daemon(BaseHTTPRequestHandler):
    """Answers as the daemon of a pipeline does."""

    pipeline = ""

    def do_GET(self) -> None:
        body = json.dumps({"name": "tidegate", "pipeline": self.pipeline}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_X17_a_taken_http_port_is_told_by_both_unless_it_is_this_pipelines_own_daemon(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HTTPServer(("127.0.0.1", 0), _Daemon) as taken:
        thread = threading.Thread(target=taken.serve_forever)
        thread.start()
        shop.document["http"]["port"] = taken.server_port
        monkeypatch.setattr(_Daemon, "pipeline", "somebody-else")
        code, (problem,) = shop.validate()
        assert (code, shop.run()) == (2, 2)
        assert "http.port: cannot listen on" in problem
        monkeypatch.setattr(_Daemon, "pipeline", shop.document["name"])
        assert shop.validate() == (0, [])
        taken.shutdown()
        thread.join()


def test_slots_of_another_python_are_refused_alike_before_spark(shop: Shop) -> None:
    other = shop.directory / "python3.9"
    other.write_text("#!/bin/sh\necho 3.9\n")
    other.chmod(0o755)
    shop.document["spark"] = {"spark.pyspark.python": str(other)}
    code, (problem,) = shop.validate()
    assert (code, shop.run()) == (2, 2)
    assert "spark.pyspark.python: slots would run on Python 3.9, the daemon runs on" in problem


def test_a_daemon_that_would_be_a_client_of_spark_connect_is_refused_alike_before_spark(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    code, (problem,) = shop.validate()
    assert (code, shop.run()) == (2, 2)
    assert "SPARK_REMOTE is set" in problem
