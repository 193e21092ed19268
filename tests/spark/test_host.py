"""The Spark session's end, and a job's, when the JVM is gone already or hangs."""

from __future__ import annotations

import errno
import logging
import queue
import socket
import threading
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.clientserver import ClientServer
from py4j.protocol import Py4JNetworkError
from pydantic import SecretStr
from pyspark import SparkContext, accumulators

from tests.waiting import PATIENCE_S, wait_until
from tidegate.config.fields.secrets import Text
from tidegate.ids import Attempt
from tidegate.slot.control_link import SlotBootstrap
from tidegate.spark.host import NotEnoughSlots, SparkHost, SparkJob, _log_accumulators
from tidegate.spark.master import SparkUnavailable


class Jvm:
    """A session's context, and its gateway and process in one."""

    def __init__(self, code: int | None, error: Exception) -> None:
        self._gateway = self
        self.proc = self
        self._code, self._error = code, error
        self.asked = False

    def poll(self) -> int | None:
        return self._code

    def stop(self) -> None:
        self.asked = True
        raise self._error


def host(tmp_path: Path, jvm: Any) -> SparkHost:
    made = SparkHost("shop", "local[2]", {}, tmp_path)
    made._context = jvm
    return made


def test_a_session_whose_jvm_was_killed_closes_without_asking_it(tmp_path: Path) -> None:
    """Else the refused connection is raised in place of the error that says why the daemon ends."""
    jvm = Jvm(-9, ConnectionRefusedError(111, "Connection refused"))
    made = host(tmp_path, jvm)
    assert not made.jvm_alive
    made.stop()
    assert not jvm.asked


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "refused"), Py4JNetworkError("Answer is empty")])
def test_a_jvm_that_dies_while_its_session_is_closed_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    caplog.set_level(logging.WARNING)
    host(tmp_path, Jvm(None, error)).stop()
    assert "could not be closed" in caplog.text


def test_a_session_that_did_not_start_may_be_started_again_by_a_supervisor() -> None:
    """The JVM was killed, the master is away: a new start meets something else."""
    assert SparkUnavailable.exit_code == 1


def test_X34_secrets_are_not_on_the_command_line_of_the_jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody on a machine can read command lines."""
    launched: dict[str, str] = {}

    def launch(settings: Mapping[str, str], *_: object) -> None:
        launched.update(settings)
        raise RuntimeError("not here")

    monkeypatch.setattr("tidegate.spark.host.DriverJvm", launch)
    monkeypatch.setattr(SparkHost, "_prepare_environment", lambda *_: None)
    account = "spark.hadoop.fs.azure.account.key.shop.dfs.core.windows.net"  # a name that does not say what it is
    given: dict[str, Text] = {
        "spark.hadoop.fs.s3a.access.key": "s3-key",
        account: SecretStr("account-key"),
        "spark.driver.memory": SecretStr("600m"),
    }
    made = SparkHost("shop", "local-cluster[2,1,512]", given, tmp_path, encrypted=True)
    with pytest.raises(SparkUnavailable, match="not here"):
        made.start(2)
    assert launched["spark.driver.memory"] == "600m"
    assert launched["spark.authenticate"] == "true"
    assert not launched.keys() & {"spark.hadoop.fs.s3a.access.key", account, "spark.authenticate.secret"}


@pytest.mark.parametrize(("master", "named"), [("spark://master:7077", True), ("yarn", False)])
def test_X34_a_cluster_that_does_not_answer_may_have_another_secret(tmp_path: Path, master: str, named: bool) -> None:
    made = without_slots(tmp_path, master)
    with pytest.raises(NotEnoughSlots, match="offers 0 slots") as told:
        made._wait_for_slots(2)
    assert ("spark.authenticate.secret" in told.value.message) is named
    assert ("limit theirs by `spark.cores.max`" in told.value.message) is named
    assert f"a cluster with another Spark version than {version('pyspark')} offers no slots" in told.value.message


def without_slots(tmp_path: Path, master: str) -> SparkHost:
    made = SparkHost("shop", master, {}, tmp_path, 0.0, encrypted=True)
    scala = SimpleNamespace(
        resourceProfileManager=lambda: SimpleNamespace(defaultResourceProfile=lambda: None),
        maxNumConcurrentTasks=lambda _profile: 0,
    )
    made._context = cast("Any", SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: scala)))
    return made


@pytest.mark.parametrize(("master", "code"), [("spark://m:7077", 1), ("yarn", 1), ("local-cluster[1,1,512]", 2)])
def test_a_start_with_too_few_slots_may_be_repeated_where_workers_may_still_come(
    tmp_path: Path, master: str, code: int
) -> None:
    """After a power failure one worker came minutes after the master, and no supervisor started the daemon again."""
    with pytest.raises(NotEnoughSlots) as told:
        without_slots(tmp_path, master)._wait_for_slots(2)
    assert (told.value.code, told.value.exit_code) == ("not-enough-slots", code)


class Hung:
    """A JVM that has stopped: whoever asks it something waits."""

    def __init__(self) -> None:
        self._gateway = self
        self.proc = self
        self.asked = threading.Event()
        self.goes_on = threading.Event()

    def poll(self) -> None:
        return None

    def stop(self) -> None:
        self.asked.set()
        assert self.goes_on.wait(PATIENCE_S)

    def cancelJobGroup(self, _group: str) -> None:
        self.stop()

    def setJobGroup(self, *_what: object, **_more: object) -> None:
        self.stop()


def test_a_session_whose_jvm_hangs_does_not_keep_its_daemon(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a thread that waits for it: Python joins all but daemon threads."""
    monkeypatch.setattr("tidegate.spark.host.STOP_TIMEOUT_S", 0.01)
    jvm = Hung()
    host(tmp_path, jvm).stop()
    assert jvm.asked.wait(PATIENCE_S)
    assert "was not closed within 0.01 s, its processes end with this one" in caplog.text
    (waiting,) = [thread for thread in threading.enumerate() if thread.name == "spark-close"]
    assert waiting.daemon
    jvm.goes_on.set()


def job_on(context: Any, ended: Callable[[str | None], None] = lambda _error: None) -> SparkJob:
    return SparkJob(context, SlotBootstrap("here", 1, Attempt(7), "token"), 2, ended, threading.Event())


def test_the_slots_of_a_jvm_that_hangs_are_not_waited_for() -> None:
    jvm = Hung()
    job_on(jvm).cancel()
    assert jvm.asked.wait(PATIENCE_S)
    jvm.goes_on.set()


def test_a_job_on_a_jvm_that_does_not_answer_ends_once_and_no_further_attempt_is_worth_trying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt waited for its slots until runtime.start_timeout, and so did the next one."""
    monkeypatch.setattr("tidegate.spark.host.ANSWER_S", 0.01)
    jvm, said = Hung(), queue.SimpleQueue[str | None]()
    made = host(tmp_path, jvm)
    alive = [made.jvm_alive]
    made.job(SlotBootstrap("here", 1, Attempt(7), "token"), 2, said.put).start()
    assert said.get(timeout=PATIENCE_S) == "the driver's JVM has not answered for 0.01 s"
    alive.append(made.jvm_alive)
    assert alive == [True, False]
    (thread,) = [one for one in threading.enumerate() if one.name == "tidegate-attempt-7"]
    jvm.goes_on.set()
    thread.join(PATIENCE_S)
    assert said.empty(), "its end is known"


@pytest.mark.parametrize(
    ("text", "alive"),
    [
        ("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\nIt was created at:", False),
        ("org.apache.spark.SparkException: Job 3 cancelled because SparkContext was shut down", False),
        ("org.apache.spark.SparkException: Job aborted due to stage failure", True),
    ],
)
def test_a_session_that_spark_has_ended_runs_no_further_attempt(tmp_path: Path, text: str, alive: bool) -> None:
    """A standalone master that removes the application does so, and a resource manager. The JVM lives on: each attempt
    failed at once, and with the default backoff never so often that the daemon gave up.
    """

    class Ended(Jvm):
        def setJobGroup(self, *_what: object, **_more: object) -> None:
            self.stop()

    made, said = host(tmp_path, Ended(None, RuntimeError(text))), queue.SimpleQueue[str | None]()
    made.job(SlotBootstrap("here", 1, Attempt(7), "token"), 2, said.put).start()
    assert said.get(timeout=PATIENCE_S) == text.partition("\n")[0]
    assert made.jvm_alive is alive


def test_a_jvm_that_is_killed_prints_no_traceback_between_the_lines_of_the_log(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    server: Any = accumulators._start_update_server("secret", False)
    try:
        _log_accumulators(SimpleNamespace(_accumulatorServer=server))
        with socket.create_connection(server.server_address) as jvm:
            jvm.sendall(b"secret")
        wait_until(lambda: "EOFError" in caplog.text, "the end of its connection is in the log")
    finally:
        server.shutdown()
        server.server_close()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "refused"), Py4JNetworkError("Answer is empty")])
def test_a_job_is_cancelled_although_its_jvm_dies_at_this_moment(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    jvm = Jvm(None, error)
    done = threading.Event()

    def cancel(_group: str) -> None:
        try:
            jvm.stop()
        finally:
            done.set()

    job_on(SimpleNamespace(cancelJobGroup=cancel)).cancel()
    assert done.wait(PATIENCE_S)
    wait_until(lambda: "could not be cancelled" in caplog.text, "it is in the log")


def test_a_job_on_a_jvm_that_has_died_between_two_attempts_ends_and_nothing_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of the job is what the daemon looks at; an error of the gateway ended it with a traceback."""
    monkeypatch.setattr(SparkContext, "_gateway", object.__new__(ClientServer))
    gone = SimpleNamespace(sc=refuse)
    monkeypatch.setattr(SparkContext, "_active_spark_context", SimpleNamespace(_jsc=gone))
    said: list[str | None] = []
    ended = threading.Event()

    def on_end(error: str | None) -> None:
        said.append(error)
        ended.set()

    job_on(SimpleNamespace(setJobGroup=lambda *_a, **_k: refuse()), on_end).start()
    assert ended.wait(PATIENCE_S)
    assert said == ["An error occurred while trying to connect to the Java server"]


def refuse() -> None:
    raise Py4JNetworkError("An error occurred while trying to connect to the Java server")


def test_a_full_disk_for_temporary_files_is_told_as_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *_arguments: Any, **_more: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(SparkHost, "_prepare_environment", lambda *_: None)
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(SparkUnavailable, match=rf"{tmp_path}: .*No space left on device.*TMPDIR") as told:
        SparkHost("shop", "local[1]", {}, tmp_path).start(1)
    assert told.value.exit_code == 1


CALL = "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: "
MEMORY = (
    f"{CALL}org.apache.spark.SparkIllegalArgumentException: [INVALID_EXECUTOR_MEMORY.CONFIG_MEMORY] Insufficient "
    "executor memory: Executor memory 268435456 must be at least 471859200.\n"
    'Please increase executor memory using the --executor-memory option or "spark.executor.memory" in Spark '
    "configuration. SQLSTATE: F0000\n"
    "\tat org.apache.spark.memory.UnifiedMemoryManager$.getMaxMemory(UnifiedMemoryManager.scala:497)\n"
)
KUBERNETES = (
    f"{CALL}io.fabric8.kubernetes.client.KubernetesClientException: An error has occurred.\n"
    "\tat io.fabric8.kubernetes.client.KubernetesClientException.launderThrowable(KubernetesClientException.java:109)\n"
    "Caused by: java.io.IOException: Connection refused: /127.0.0.1:1\n"
    "\t... 20 more\n"
    "Caused by: io.netty.channel.AbstractChannel$AnnotatedConnectException: Connection refused: /127.0.0.1:1\n"
    "Caused by: java.net.ConnectException: Connection refused\n"
)
"""Of Spark 4.3.0, from which lines of the stacks were left out."""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MEMORY, "Executor memory 268435456 must be at least 471859200"),
        (KUBERNETES, "An error has occurred, caused by java.io.IOException: Connection refused: /127.0.0.1:1"),
        ("", "RuntimeError"),
    ],
)
def test_a_session_that_spark_refuses_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    """Its first line names the call only, and Spark's own log is off."""

    def refused(*_what: object) -> None:
        raise RuntimeError(text)

    monkeypatch.setattr("tidegate.spark.host.DriverJvm", refused)
    monkeypatch.setattr(SparkHost, "_prepare_environment", lambda *_: None)
    with pytest.raises(SparkUnavailable) as told:
        SparkHost("shop", "local[1]", {}, tmp_path).start(1)
    assert f"{said}; check `spark.master`, the other settings of `spark:` and" in told.value.message
    assert "An error occurred while calling" not in told.value.message
