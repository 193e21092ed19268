"""The life of a daemon as its operators see it: probes, metrics, logs, the mirrored group, a kill, a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support import clients
from tests.support.daemon_process import DaemonProcess
from tests.support.processes import find_descendants, is_alive, kill
from tests.users.user import User, log_lines, numbers
from tests.waiting import wait_until
from tidegate.daemon.metric_catalogue import CATALOGUE

pytestmark = pytest.mark.slow


def value(daemon: DaemonProcess, name: str, **labels: str) -> float:
    """Sum of a metric's samples with these labels."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(daemon.http("/metrics")[1])
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def test_probes_metrics_logs_and_the_mirrored_group_of_a_life_with_a_kill(user: User) -> None:
    source, out = user.numbers(partitions=2, until="never")
    user.produce(source, numbers(*((number, 2) for number in range(500))))
    daemon = user.start()
    daemon.wait_for(r"http://127\.0\.0\.1:(\d+)")
    assert daemon.http("/livez")[0] == 200
    assert daemon.http("/readyz")[0] == 503
    daemon.wait_running()
    assert [daemon.http(path)[0] for path in ("/livez", "/readyz", "/startupz")] == [200, 200, 200]
    wait_until(lambda: value(daemon, "tidegate_records_committed_total") == 500, "all 500 are committed")
    wait_until(lambda: value(daemon, "tidegate_records_in_total") == 500, "500 are counted in")
    wait_until(lambda: value(daemon, "tidegate_records_out_total") == 500, "500 are counted out")

    assert kill(daemon.slots()[0])
    wait_until(lambda: value(daemon, "tidegate_restarts_total") == 1, "the restart is counted")
    wait_until(lambda: daemon.http("/readyz")[0] == 200, "ready again")
    user.produce(source, numbers(*((number, 2) for number in range(500, 700))))
    wait_until(lambda: len(user.rows(out)) == 700, "the others are out")
    names = {family.name for family in text_string_to_metric_families(daemon.http("/metrics")[1])}
    wait_until(lambda: "tidegate_source_lag_records{" in daemon.http("/metrics")[1], "the lag is known")
    wait_until(lambda: value(daemon, "tidegate_source_lag_records") == 0, "no lag at the end")
    missing = {name.removesuffix("_total") for name in CATALOGUE} - names
    assert missing <= {f"tidegate_source_{name}" for name in ("lag_records", "lag_age_seconds", "position_offset")}
    assert daemon.terminate() == 0

    lines = log_lines(daemon.text())
    assert all({"time", "level", "logger", "message", "pipeline"} <= line.keys() for line in lines)
    checkpoints = [line["checkpoint"] for line in lines if " completed in " in line["message"]]
    assert checkpoints == sorted(set(checkpoints))
    assert mirrored(user, source) == ends(user, source)
    assert sorted(row["id"] for row in user.rows(out)) == list(range(700))


@pytest.mark.deep
def test_a_daemon_whose_jvm_is_killed_ends_with_one_line_of_json_and_the_next_one_is_exact(user: User) -> None:
    """Behind its last line there was a traceback of pyspark's."""
    source, out = user.numbers(until="never")
    user.produce(source, numbers(*((number, 2) for number in range(300))))
    daemon = user.start()
    daemon.wait_running().wait_committed()
    below = find_descendants(daemon.pid)
    (jvm,) = [process.pid for process in below if "SparkSubmit" in process.command]
    assert kill(jvm)
    assert daemon.wait() == 1
    assert "can run no more jobs" in log_lines(daemon.text())[-1]["message"]
    wait_until(lambda: not any(is_alive(process.pid) for process in below), "its processes end")
    user.produce(source, numbers(*((number, 2) for number in range(300, 400))))
    user.document["sources"]["numbers"]["until"] = "latest"
    user.run().says(0, "commits 100 records")
    assert sorted(row["id"] for row in user.rows(out)) == list(range(400))


def mirrored(user: User, topic: str) -> dict[int, int]:
    """Offsets of the consumer group with the pipeline's name."""
    import confluent_kafka as ck

    admin: Any = clients.admin({"bootstrap.servers": user.bootstrap})
    wanted = [ck.ConsumerGroupTopicPartitions(user.name)]
    (future,) = admin.list_consumer_group_offsets(wanted).values()
    return {part.partition: part.offset for part in future.result(60).topic_partitions if part.topic == topic}


def ends(user: User, topic: str) -> dict[int, int]:
    """Ends of the partitions."""
    import confluent_kafka as ck

    settings: dict[str, Any] = {"bootstrap.servers": user.bootstrap, "group.id": "ends"}
    consumer = clients.consumer(settings)
    try:
        found = {part: consumer.get_watermark_offsets(ck.TopicPartition(topic, part), 60) for part in (0, 1)}
        return {part: offsets[1] for part, offsets in found.items()}
    finally:
        consumer.close()


@pytest.mark.deep
def test_on_a_terminal_the_log_is_text_with_a_display_below(user: User) -> None:
    source, out = user.numbers()
    user.produce(source, numbers((1, 1), (2, 2)))
    user.document["logging"] = {"format": "auto"}
    file = user.write()
    screen, terminal = pty.openpty()
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
    process = subprocess.Popen(
        [sys.executable, "-m", "tidegate", "run", str(file)],
        stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal, env=environ, start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    try:
        while chunk := os.read(screen, 65536):
            shown += chunk
    except OSError:  # EIO: the other end is closed
        pass
    finally:
        os.close(screen)
    assert process.wait(300) == 0
    text = shown.decode(errors="replace")
    assert "finished" in text
    assert "INFO" in text
    assert "WARNING: Using incubator" not in text
    assert "Traceback" not in text
    assert len(user.rows(out)) == 2
