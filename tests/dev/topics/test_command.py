"""`tidegate topic` and `tidegate init --topic` on a real broker, as a new user types them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.conftest import SessionBroker, TopicMaker
from tests.sources.kafka_topics import produce_transaction
from tests.support.secured_broker import Right, SecuredBroker
from tidegate.cli import main as cli
from tidegate.config.load import read_pipeline
from tidegate.dev.topics import command as topic_command
from tidegate.dev.topics.client import TopicRecords, TopicRefused, TopicWriter, find_topic
from tidegate.dev.topics.command import _write
from tidegate.dev.topics.records import LineReader, render_text
from tidegate.kafka.errors import BrokerUnavailable

pytestmark = pytest.mark.slow


class Shell:
    """Runs commands against the session's broker; `error` is what the last one has written to stderr."""

    def __init__(self, bootstrap: str) -> None:
        self._environ = {"KAFKA_BOOTSTRAP": bootstrap}
        self.error = ""

    def run(self, *arguments: object, stdin: bytes | None = None, code: int = 0) -> str:
        """What it prints."""
        with CliRunner(env=self._environ).isolation(input=stdin) as (out, err, _):
            ended = cli.run_command([str(each) for each in arguments])
        self.error = err.getvalue().decode()
        assert ended == code, self.error
        return out.getvalue().decode()


def values(printed: str) -> list[str]:
    """The last column of the text form."""
    return [line.rsplit("  ", 1)[1] for line in printed.splitlines()]


@pytest.fixture
def shell(broker: SessionBroker) -> Shell:
    return Shell(broker.bootstrap)


def test_a_topic_is_created_once_and_listed(shell: Shell, unique_name: Callable[[str], str]) -> None:
    name = unique_name("orders")
    created = shell.run("topic", "create", name, "--partitions", "3", "--config", "retention.ms=-1")
    assert created == f"{name}: created with 3 partitions\n"
    shell.run("topic", "create", name, code=1)
    assert f"topic {name} already exists" in shell.error
    assert "with 3 partitions; use it, or choose another name" in shell.error
    assert f"{name}  3 partitions" in [
        " ".join(line.rsplit(maxsplit=2)).replace(" ", "  ", 1) for line in shell.run("topic", "list").splitlines()
    ]
    entries = json.loads(shell.run("topic", "list", "--format", "json"))
    assert {"topic": name, "partitions": 3} in entries
    assert not [entry for entry in entries if entry["topic"].startswith("__")]


def test_several_topics_are_created_up_to_the_first_that_cannot_be(
    shell: Shell, unique_name: Callable[[str], str]
) -> None:
    first, second, third = (unique_name(name) for name in "abc")
    created = shell.run("topic", "create", first, second, first)
    assert created == f"{first}: created with 1 partition\n{second}: created with 1 partition\n"
    assert shell.run("topic", "create", third, second, "more", code=1) == f"{third}: created with 1 partition\n"
    shell.run("topic", "create", "never", "a b", code=2)
    listed = shell.run("topic", "list").split()
    assert (third in listed, "more" in listed, "never" in listed) == (True, False, False)


def test_the_broker_says_why_it_creates_no_topic(shell: Shell) -> None:
    shell.run("topic", "create", "orders", "--config", "retention.ms=soon", code=1)
    assert "topic orders was not created" in shell.error
    assert "Invalid value soon for configuration retention.ms" in shell.error


def test_an_unknown_topic_is_answered_with_the_nearest(shell: Shell, topics: TopicMaker) -> None:
    name = topics("payments")
    for command in ("read", "produce"):
        shell.run("topic", command, f"{name}s", stdin=b"", code=1)
        assert f"there is no topic {name}s" in shell.error
        assert f"did you mean `{name}`?" in shell.error
        assert f"`tidegate topic create {name}s` creates it" in shell.error


def test_without_a_broker_the_message_says_how_to_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.dev.topics.client.ANSWER_S", 1.0)
    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:9: Connection refused; start the broker"):
        find_topic({"bootstrap.servers": "127.0.0.1:9"}, "orders")
    monkeypatch.setattr("tidegate.dev.topics.client.DEFAULT_BOOTSTRAP", "127.0.0.1:9")
    with pytest.raises(BrokerUnavailable, match="start one with `tidegate broker`, or name your own with --bootstrap"):
        find_topic({"bootstrap.servers": "127.0.0.1:9"}, "orders")


def test_records_are_written_from_a_file_and_from_standard_input_and_read_back(
    shell: Shell, topics: TopicMaker, tmp_path: Path
) -> None:
    name = topics("orders", 2)
    file = tmp_path / "orders.jsonl"
    file.write_bytes(b'ann\t{"id": 1}\nbob\t{"id": 2}\n\nann\t{"id": 3}\n')
    written = shell.run("topic", "produce", name, file, "--key-separator", "\t")
    assert written == f"{name}: 3 records written\n"
    assert shell.run("topic", "produce", name, "--key", "eve", stdin=b'{"id": 4}') == f"{name}: 1 record written\n"
    entries = [json.loads(line) for line in shell.run("topic", "read", name, "--format", "json").splitlines()]
    assert [(entry["key"], entry["value"]["id"]) for entry in entries if entry["key"] == "ann"] == [
        ("ann", 1),
        ("ann", 3),
    ]
    assert {entry["value"]["id"] for entry in entries} == {1, 2, 3, 4}
    lines = shell.run("topic", "read", name, "--from-beginning").splitlines()
    assert len(lines) == 4
    assert any(line.endswith('  eve  {"id": 4}') for line in lines)
    assert len(shell.run("topic", "read", name, "--from-beginning", "--max", "3").splitlines()) == 3


def test_lines_before_the_one_that_is_refused_are_written(shell: Shell, topics: TopicMaker) -> None:
    name = topics()
    out = shell.run("topic", "produce", name, stdin=b"1\n2\nthree\n4\n", code=2)
    assert out == f"{name}: 2 records written\n"
    assert "line 3 is not JSON" in shell.error
    assert shell.run("topic", "produce", name, "--format", "text", stdin=b"three\n") == f"{name}: 1 record written\n"
    assert values(shell.run("topic", "read", name)) == ["1", "2", "three"]


def test_what_was_written_before_ctrl_c_is_reported(
    broker: SessionBroker, topics: TopicMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    def lines() -> Iterator[bytes]:
        yield b"1\n"
        raise KeyboardInterrupt

    name = topics()
    writer = TopicWriter({"bootstrap.servers": broker.bootstrap}, name)
    assert _write(writer, LineReader(json=True), lines(), name) == 130
    assert capsys.readouterr().out == f"{name}: 1 record written\n"


def test_a_record_that_is_too_large_is_refused(shell: Shell, topics: TopicMaker) -> None:
    shell.run("topic", "produce", topics(), stdin=b'"%s"' % (b"1" * 2_000_000), code=1)
    assert "a record was not written" in shell.error
    assert "Message size too large" in shell.error


def test_options_that_contradict_each_other_are_refused(shell: Shell) -> None:
    shell.run("topic", "produce", "orders", "--key", "a", "--key-separator", ":", code=2)
    assert "exclude each other" in shell.error
    shell.run("topic", "produce", "orders", "--key-separator", "", code=2)
    assert "--key-separator is empty" in shell.error
    shell.run("topic", "create", "orders", "--config", "retention.ms", code=2)
    assert "--config takes NAME=VALUE" in shell.error


def test_the_newest_records_are_found_behind_markers_and_aborted_ones(
    shell: Shell, broker: SessionBroker, topics: TopicMaker
) -> None:
    """Three records, a marker after each, and forty offsets of aborted records after them."""
    name = topics()
    for number in range(3):
        produce_transaction(broker.bootstrap, name, [b"%d" % number])
    produce_transaction(broker.bootstrap, name, [b"-1"] * 40, commit=False)
    assert [line.rsplit("  ", 1)[1] for line in shell.run("topic", "read", name, "--max", "2").splitlines()] == [
        "1",
        "2",
    ]
    assert len(shell.run("topic", "read", name, "--from-beginning", "--uncommitted").splitlines()) == 43
    assert len(shell.run("topic", "read", name, "--from-beginning").splitlines()) == 3


def test_the_newest_records_are_those_of_a_partition_with_markers_too(
    shell: Shell, broker: SessionBroker, topics: TopicMaker
) -> None:
    """Nine old records of one partition and half of the newest ten of another one are more than ten."""
    name = topics("two", 2)
    produce_transaction(broker.bootstrap, name, [b"old"] * 9, partition=0)
    for number in range(10):
        produce_transaction(broker.bootstrap, name, [b"%d" % number], partition=1)
    lines = shell.run("topic", "read", name, "--max", "10").splitlines()
    assert [line.rsplit("  ", 1)[1] for line in lines] == [str(number) for number in range(10)]


def test_a_topic_without_records_says_so(shell: Shell, topics: TopicMaker) -> None:
    name = topics("empty", 2)
    assert shell.run("topic", "read", name) == ""
    assert shell.error == f"{name}: no committed records\n"
    shell.run("topic", "read", name, "--uncommitted", "--from-beginning")
    assert shell.error == f"{name}: no records\n"


def test_what_comes_is_followed(shell: Shell, broker: SessionBroker, topics: TopicMaker) -> None:
    name = topics()
    shell.run("topic", "produce", name, stdin=b"1\n")
    with TopicRecords({"bootstrap.servers": broker.bootstrap}, name, committed=True) as reader:
        coming = reader.records({0: reader.bounds()[0][1]}, None)
        shell.run("topic", "produce", name, stdin=b"2\n")
        assert render_text(next(coming)).endswith("  2")
        shell.run("topic", "produce", name, stdin=b"3\n")
        assert render_text(next(coming)).endswith("  3")


def test_ctrl_c_says_nothing_of_what_the_topic_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have records all the same: nobody has waited for the end of it."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(topic_command, "find_topic", lambda *_: 1)
    monkeypatch.setattr(TopicRecords, "bounds", interrupt)
    shell = Shell("127.0.0.1:1")
    assert shell.run("topic", "read", "orders", "--follow") == ""
    assert shell.error == ""


def test_init_writes_a_file_that_reads_the_topic(shell: Shell, topics: TopicMaker, tmp_path: Path) -> None:
    name = topics("orders", 2)
    records = [
        {"id": number, "customer": "ann", "amount": number / 2, "at": "2026-01-01T00:00:00Z"} for number in range(50)
    ]
    shell.run("topic", "produce", name, stdin="\n".join(map(json.dumps, records)).encode())
    file = tmp_path / "orders.yaml"
    out = shell.run("init", file, "--topic", name, "--kafka", "client.id=me", "--records", "10")
    assert out == f"{file} written; review it, then run `tidegate validate {file}`\n"
    settings = read_pipeline(file, {}).settings
    (source,) = settings.sources.values()
    assert isinstance(source.schema_, dict)
    assert {column: str(kind) for column, kind in source.schema_.items()} == {
        "id": "bigint",
        "customer": "string",
        "amount": "double",
        "at": "timestamp",
    }
    assert settings.kafka["client.id"] == "me"
    assert "# inferred from 10 records" in file.read_text()
    assert shell.run("validate", file) == f"{file}: valid\n"
    assert f"topic: {name}\n" in shell.run("init", "--topic", name)


def test_init_of_an_empty_topic_says_what_to_do(shell: Shell, topics: TopicMaker, tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    name = topics("empty")
    shell.run("init", file, "--topic", name, code=1)
    assert f"topic {name} has no committed records to infer a schema from" in shell.error
    assert not file.exists()


@pytest.mark.deep
def test_a_secured_cluster_is_reached_with_the_properties_of_a_pipeline_file(tmp_path: Path) -> None:
    """TLS by an authority of its own, and a user with the rights on one topic: all commands, then none without them."""
    secured = SecuredBroker(tmp_path / "secured", {"ann": "ann-secret"})
    try:
        secured.start()
        secured.grant("ann", [Right("TOPIC", "orders", operation) for operation in ("CREATE", "READ", "WRITE")])
        shell, password = Shell(secured.secured), tmp_path / "password"
        password.write_text("ann-secret")
        login = {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ann",
            "sasl.password": f"${{file:{password}}}",
            "ssl.ca.location": str(secured.authority.file),
        }
        options = [f"--kafka={name}={value}" for name, value in login.items()]
        shell.run("topic", "create", "orders", *options)
        assert shell.run("topic", "list", *options) == "orders  1 partition\n"
        shell.run("topic", "produce", "orders", *options, stdin=b'{"id": 1}')
        assert values(shell.run("topic", "read", "orders", *options)) == ['{"id": 1}']
        assert 'sasl.password: "${file:' in shell.run("init", "--topic", "orders", *options)
        password.write_text("wrong")
        shell.run("topic", "list", *options, code=2)
        assert "it refuses the user `ann` (PLAIN)" in shell.error
    finally:
        secured.kill()


def test_a_read_to_the_end_that_comes_to_a_stand_ends_with_the_reason(
    broker: SessionBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.sources.topic_reader.STALL_S", 0.5)
    with TopicRecords({"bootstrap.servers": broker.bootstrap}, "no-such-topic", committed=True) as reader:
        with pytest.raises(TopicRefused, match=r"is reachable, but this request failed: no record arrived for 0\.5 s"):
            list(reader.read({0: 0}, {0: 1}))
