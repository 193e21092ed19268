"""Spark as the host of the slots: one session per daemon, one barrier job per attempt (design section 2).

Spark provides placement, executors, code shipping and process supervision. It never decides about a restart: a barrier
job that ends in an action is not retried, and the end of its thread is the failure signal of last resort.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from tidegate.config.encryption import ENCRYPTED_SPARK, SECRET, STANDALONE
from tidegate.config.fields.counts import render_count
from tidegate.config.fields.secrets import Text, is_secret_key, reveal
from tidegate.errors import PipelineStopped
from tidegate.slot.control_link import SlotBootstrap
from tidegate.slot.fork_guard import EARLY_SERVER, FROZEN_S
from tidegate.spark.class_archive import spark_archive
from tidegate.spark.gateway import DriverJvm, EarlyServer, JvmOutput, link_home, make_key
from tidegate.spark.java import find_java, java_home
from tidegate.spark.job_errors import derive_job_error, describe_failure, describe_refusal
from tidegate.spark.master import MASTER_TIMEOUT_S, SparkUnavailable, find_driver_host, wait_for_master
from tidegate.spark.versions import read_spark

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)

T = TypeVar("T")

START_TIMEOUT_S: Final = 120.0
FROZEN_S_MAX: Final = 10.0
POLL_S: Final = 0.1
REHEARSAL_S_MAX: Final = 120.0
KUBERNETES: Final = "k8s://"
FORK_GUARD: Final = "tidegate.slot.fork_guard"
EXECUTOR_ENVIRONMENT: Final = "spark.executorEnv."
STOP_TIMEOUT_S: Final = 15.0
ANSWER_S: Final = 60.0
"""Time limit for the first response to a job: a JVM that takes longer is stuck (stopped, for example) for every job."""
OUTPUT_TIMEOUT_S: Final = 1.0
"""How long to wait for the last lines of a JVM that has ended."""

ENGINE_SETTINGS: Final[Mapping[str, str]] = {
    "spark.dynamicAllocation.enabled": "false",  # rejected by barrier jobs
    "spark.speculation": "false",
    "spark.api.mode": "classic",  # Connect has no SparkContext
    "spark.ui.enabled": "false",
    "spark.log.level": "FATAL",  # the daemon reports each failure once, without a Java stack trace
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "false",  # a fresh process per attempt: no thread or client survives
    "spark.python.task.killTimeout": "0ms",
    "spark.scheduler.revive.interval": "200ms",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "30",
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.executor.heartbeatInterval": "5s",
    "spark.executor.heartbeat.maxFailures": "24",  # an executor without its driver ends after 2 minutes
    "spark.network.timeoutInterval": "5s",
    "spark.network.timeout": "30s",
    "spark.task.reaper.enabled": "true",
    "spark.task.reaper.killTimeout": "60s",
    "spark.executor.maxNumFailures": "1000000",  # a daemon must not end by counting lost executors
    "spark.executor.failuresValidityInterval": "1h",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.python.daemon.module": FORK_GUARD,
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
}
"""Defaults of the engine; the pipeline file may override each (reasons in docs/adr)."""

JVM_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xshare:auto",
    "-XX:-UsePerfData",
    "-Xms64m",
    "-Xmn16m",
)
"""Options for a fast start and a small heap, because no record passes through the JVM.

By default the heap begins with a 64th of the machine's memory, and garbage is collected only when it is full: a driver
holds 253 MB instead of 182.

With the defaults, a session on two executors takes 26 s of CPU until its first task; with these, 12 (measured on two
cores; half of it is compilation).
"""

QUIET_LOG4J: Final = """status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n
"""


_OF_THE_CLUSTER: Final = (
    "; if no process of the cluster answers: it needs the pipeline's spark.authenticate.secret, and the settings in "
    "`tidegate docs operations/security`, Encryption"
)


_OF_OTHERS: Final = (
    "; if other applications hold the cores of the cluster: limit theirs by `spark.cores.max`, else each takes all"
)


SESSION_ENDED: Final = ("stopped SparkContext", "SparkContext was shut down")
"""Spark's messages about a job if it has ended the session itself.

Its master may have removed the application, for example.
"""


class NotEnoughSlots(PipelineStopped):
    """The Spark master offers fewer task slots than the pipeline's parallelism, and will not offer more."""

    code = "not-enough-slots"
    exit_code = 2


class SlotsUnavailable(NotEnoughSlots):
    """The same for a cluster.

    Its workers may start late, for example after a power failure, so a restart may succeed.
    """

    exit_code = 1


class SparkHost:
    """The Spark session of a daemon. Calls block: run them in a thread."""

    def __init__(
        self,
        application: str,
        master: str,
        properties: Mapping[str, Text],
        work_dir: Path,
        start_timeout_s: float = START_TIMEOUT_S,
        *,
        encrypted: bool = False,
        frozen_s: float = FROZEN_S_MAX,
        early_server: EarlyServer | None = None,
    ) -> None:
        """`frozen_s` limits how long the process that slots are forked from may be frozen.

        `early_server` becomes that process, if slots may use it.
        """
        self._frozen_s = frozen_s
        self._early_server = early_server
        self.channel_key = ""
        """The key (see `slot/channel_sockets.py`). Set once the session is open; empty if nothing is encrypted."""
        self._encrypted = encrypted
        self._start_timeout_s = start_timeout_s
        self._application = application
        self._master = master
        self._properties = reveal(properties)
        self._from_files = {name for name, value in properties.items() if not isinstance(value, str)}
        self._work_dir = work_dir
        self._context: SparkContext | None = None
        self._lost = threading.Event()
        """Set if no job can run any more: the JVM has not responded in time, or Spark has ended the session."""
        self._output = JvmOutput()

    def start(self, parallelism: int) -> None:
        """Opens the session and counts its slots. Raises SparkUnavailable, NotEnoughSlots."""
        wait_for_master(self._master, min(MASTER_TIMEOUT_S, self._start_timeout_s))
        java = find_java()
        archive = spark_archive(java).options
        log4j, temporary = self._prepare(java)
        self._offer_early_server()
        here = [f"-Djava.io.tmpdir={temporary}", *archive]
        for name, more in (
            ("spark.driver.extraJavaOptions", here),
            # Executors of a cluster run where these files do not exist.
            ("spark.executor.extraJavaOptions", here if self.is_local else []),
        ):
            self._properties[name] = derive_java_options(self._properties.get(name, ""), log4j, more)
        settings = derive_settings(
            self._application, self._master, self._properties, encrypted=self._encrypted, frozen_s=self._frozen_s
        )
        public = {name: value for name, value in settings.items() if not self._is_secret(name)}
        output = self._output
        try:
            with output.writer() as descriptor:
                jvm = DriverJvm(public, descriptor, self._work_dir)
            from pyspark import SparkConf, SparkContext

            conf, gateway = SparkConf(loadDefaults=False), jvm.connect()
            conf.setAll(list(settings.items()))
            if self._encrypted:
                self.channel_key = make_key(java, gateway.jvm, self._work_dir)
                logger.info("traffic between daemon, slots and Spark is encrypted")
            self._context = SparkContext(conf=conf, gateway=gateway)
            _log_accumulators(self._context)
        except SparkUnavailable:
            raise
        except Exception as error:  # py4j raises its own and plain exceptions for everything from Java to the master
            output.wait_end(OUTPUT_TIMEOUT_S)
            said = f"; it said: {output.tail}" if output.tail else ""
            raise SparkUnavailable(
                f"Spark session on {self._master} could not be started: {describe_refusal(error)}{said}; check "
                "`spark.master`, the other settings of `spark:` and the Java installation"
                f"{self._cause_of_the_cluster}"
            ) from error
        self._wait_for_slots(parallelism)
        if not self.is_local:
            _ask(partial(self._warm_up, parallelism), "spark-warm-up")

    def _offer_early_server(self) -> None:
        """Names the early server to executors on this machine, unless the file sets what only a new process can use."""
        if self._early_server is None:
            return
        ours = os.environ["PYSPARK_PYTHON"] == sys.executable
        if self.is_local and ours and not any(name.startswith(EXECUTOR_ENVIRONMENT) for name in self._properties):
            self._properties[f"{EXECUTOR_ENVIRONMENT}{EARLY_SERVER}"] = self._early_server.address
        else:
            self._early_server.close()

    def _warm_up(self, parallelism: int) -> None:
        """Runs an empty job, so that fork servers import their modules while the daemon takes the pipeline over.

        Its tasks are spread over the executors.
        """
        context: Any = self._context
        try:
            context.parallelize(range(parallelism), parallelism).mapPartitions(list).collect()
        except Exception as failure:  # noqa: BLE001 - the job of the attempt meets the same error, and reports it
            logger.debug("the fork servers were not warmed up: %s", describe_failure(str(failure)))

    def job(self, bootstrap: SlotBootstrap, parallelism: int, ended: Callable[[str | None], None]) -> SparkJob:
        """Creates the barrier job of one attempt.

        `ended` is called once from its thread with None or the error's text.
        """
        assert self._context is not None
        keyed = msgspec.structs.replace(bootstrap, key=self.channel_key)
        return SparkJob(self._context, keyed, parallelism, ended, self._lost)

    def collect(self, look: Callable[[int], T], parallelism: int) -> list[T]:
        """Returns the result of `look` in each slot of the open session.

        Raises the error that `derive_job_error` derives.
        """
        context: Any = self._context

        def each(slots: Iterable[int]) -> Iterator[T]:
            return map(look, slots)

        try:
            return list(context.parallelize(range(parallelism), parallelism).barrier().mapPartitions(each).collect())
        except Exception as failure:
            raise derive_job_error(describe_failure(str(failure))) from failure

    def rehearse(self, parallelism: int) -> None:
        """Runs an empty job like an attempt's, then ends the JVM normally (see `class_archive`).

        Raises subprocess.TimeoutExpired.
        """
        from py4j.protocol import Py4JError

        context: Any = self._context
        gateway = context._gateway  # noqa: SLF001 - pyspark has no public name for it
        context.parallelize(range(parallelism), parallelism).barrier().mapPartitions(list).collect()
        self.stop()
        try:
            gateway.jvm.java.lang.System.exit(0)  # otherwise it is killed with this process
        except (OSError, Py4JError):
            logger.debug("the JVM has ended before it could answer")
        gateway.proc.wait(REHEARSAL_S_MAX)

    def stop(self) -> None:
        """Closes the session; the JVM ends with the process. A dead JVM is skipped, and one that hangs is abandoned."""
        if self._context is None:
            return
        from py4j.protocol import Py4JError

        context, alive, self._context = self._context, self.jvm_alive, None
        self._output.session_ends()
        if not alive:
            return

        def close() -> None:
            try:
                context.stop()
            except (OSError, Py4JError) as error:  # the daemon must report its own error, not that its JVM ended first
                logger.warning("the Spark session could not be closed, its processes end with this one: %s", error)

        closing = _ask(close, "spark-close")
        closing.join(STOP_TIMEOUT_S)
        if closing.is_alive():
            logger.warning(
                "the Spark session was not closed within %g s, its processes end with this one", STOP_TIMEOUT_S
            )

    @property
    def jvm_alive(self) -> bool:
        """True if the gateway JVM is believed to run jobs; if not, only a new daemon process helps."""
        process = getattr(getattr(self._context, "_gateway", None), "proc", None)
        return not self._lost.is_set() and (process is None or process.poll() is None)

    def _is_secret(self, name: str) -> bool:
        """Returns whether a property is secret: by its name, or because the pipeline file takes it from another file.

        Of the latter, those of the driver are not, because the JVM is started with them.
        """
        return is_secret_key(name) or (name in self._from_files and not name.startswith("spark.driver."))

    def _prepare(self, java: Path) -> tuple[Path, Path]:
        """Prepares the environment, the log configuration of the JVMs, and a directory for their temporary files.

        Raises SparkUnavailable.
        """
        log4j, temporary = self._work_dir / "log4j2.properties", self._work_dir / "tmp"
        try:
            log4j.write_text(QUIET_LOG4J, encoding="utf-8")
            temporary.mkdir()
            self._prepare_environment(java)
        except OSError as error:
            if error.filename and not Path(error.filename).is_relative_to(self._work_dir):  # a file of Java or Spark
                raise SparkUnavailable(f"{error.filename} cannot be used: {error.strerror}") from error
            raise SparkUnavailable(
                f"{self._work_dir}: temporary files cannot be written: {error.strerror or error}; let TMPDIR name a "
                "directory that this user can write to, with 100 MB to spare"
            ) from error
        return log4j, temporary

    def _prepare_environment(self, java: Path) -> None:
        """Sets the environment, so that executors run the daemon's own interpreter.

        The property spark.pyspark.python is mapped to a variable, because the builder ignores it.
        """
        python = self._properties.pop("spark.pyspark.python", None) or os.environ.get("PYSPARK_PYTHON")
        os.environ["PYSPARK_PYTHON"] = python or sys.executable
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["JAVA_HOME"] = str(java_home(java, self._work_dir))
        if self._master.startswith("local-cluster"):
            os.environ["SPARK_HOME"] = str(link_home(self._work_dir))
        # The driver's name for executors, unless the file sets it: other machines may not resolve this machine's name.
        host = "localhost" if self.is_local else find_driver_host(self._master, {})
        os.environ.setdefault("SPARK_LOCAL_HOSTNAME", host)
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", " ".join(JVM_OPTIONS))
        if not self._master.startswith(KUBERNETES):  # on Kubernetes every executor would get a volume of this name
            os.environ.setdefault("SPARK_LOCAL_DIRS", str(self._work_dir / "spark"))

    @property
    def _cause_of_the_cluster(self) -> str:
        """Describes what may prevent the cluster from connecting to the driver, as the end of a message."""
        return _OF_THE_CLUSTER if self._encrypted and self._master.startswith(STANDALONE) else ""

    @property
    def _cause_of_versions(self) -> str:
        """Describes a version mismatch, as the end of a message.

        A cluster of another Spark does not respond, because it cannot read what the driver sends (seen with 3.5 and
        4.3).
        """
        return (
            ""
            if self.is_local
            else f"; a cluster with another Spark version than {read_spark().library} offers no slots"
        )

    @property
    def is_local(self) -> bool:
        """True if all slots run on this machine."""
        return self._master.startswith("local")

    def _wait_for_slots(self, parallelism: int) -> None:
        context: Any = self._context
        scala = context._jsc.sc()  # noqa: SLF001 - the only access to Spark's own count of slots
        profile = scala.resourceProfileManager().defaultResourceProfile()
        deadline = time.monotonic() + (5.0 if self._master.startswith("local[") else self._start_timeout_s)
        offered = 0
        while True:
            offered = int(scala.maxNumConcurrentTasks(profile))
            if offered >= parallelism:
                logger.info("Spark %s offers %s, %d used", self._master, render_count(offered, "slot"), parallelism)
                return
            if time.monotonic() > deadline:
                break
            threading.Event().wait(POLL_S)
        held = _OF_OTHERS if self._master.startswith(STANDALONE) else ""
        silent = "" if offered else self._cause_of_the_cluster + self._cause_of_versions
        raise (NotEnoughSlots if self.is_local else SlotsUnavailable)(
            f"spark.master {self._master} offers {offered} slots, parallelism needs {parallelism}; raise the cores of "
            f"the master or of the executors, or lower `parallelism`{held}{silent}",
            offered=offered,
            needed=parallelism,
        )


class SparkJob:
    """Runs `parallelize(n).barrier().mapPartitions(slot).collect()` in a thread of the daemon."""

    def __init__(
        self,
        context: SparkContext,
        bootstrap: SlotBootstrap,
        parallelism: int,
        ended: Callable[[str | None], None],
        lost: threading.Event,
    ) -> None:
        """`lost` is set if no other job can run either."""
        self._context = context
        self._group = f"tidegate-attempt-{bootstrap.attempt}"
        self._bootstrap = bootstrap
        self._parallelism = parallelism
        self._ended: Callable[[str | None], None] | None = ended
        self._lost = lost
        self._heard = threading.Event()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Submits the job and returns at once. Any problem of the JVM ends the job."""
        _ask(self._run, self._group)
        _ask(self._watch, f"{self._group}-watch")

    def cancel(self) -> None:
        """Requests that Spark kill the rest of the job and returns at once. Slow; only for slots that do not return."""
        _ask(self._cancel, f"{self._group}-cancel")

    def _cancel(self) -> None:
        from py4j.protocol import Py4JError

        try:
            self._context.cancelJobGroup(self._group)
        except (OSError, Py4JError) as error:
            logger.warning("the Spark job of the slots could not be cancelled: %s", error)

    def _run(self) -> None:
        bootstrap = self._bootstrap

        def slot(partitions: Iterable[int]) -> Iterator[int]:
            from tidegate.slot.worker import run_slot

            return iter([run_slot(bootstrap, next(iter(partitions)))])

        error: str | None = None
        try:
            self._context.setJobGroup(self._group, "tidegate slots", interruptOnCancel=True)
            self._heard.set()
            self._context.parallelize(range(self._parallelism), self._parallelism).barrier().mapPartitions(
                slot
            ).collect()
        except Exception as failure:  # noqa: BLE001 - any exception ends the job; its text names the cause
            text = str(failure)
            if any(phrase in text for phrase in SESSION_ENDED):
                self._lost.set()
            error = describe_failure(text)
        self._heard.set()
        self._end(error)

    def _watch(self) -> None:
        if not self._heard.wait(ANSWER_S):
            self._lost.set()
            self._end(f"the driver's JVM has not answered for {ANSWER_S:g} s")

    def _end(self, error: str | None) -> None:
        """Reports the end once, however late the JVM responds."""
        with self._lock:
            ended, self._ended = self._ended, None
        if ended is not None:
            ended(error)


def _log_accumulators(context: Any) -> None:
    """Lets pyspark's server of accumulators, which nothing here uses, log its errors instead of printing them.

    When the JVM dies, its connection ends, and a traceback between the lines of the log would not be JSON.
    """

    def handle_error(_request: object, _client: object) -> None:
        logger.debug("pyspark's server of accumulators failed: %r", sys.exception())

    context._accumulatorServer.handle_error = handle_error  # noqa: SLF001 - pyspark has no public name for it


def _ask(call: Callable[[], None], name: str) -> threading.Thread:
    """Calls the JVM, which may hang, in a thread that neither the loop nor the exit of the process waits for."""
    thread = threading.Thread(target=call, name=name, daemon=True)
    thread.start()
    return thread


def derive_settings(
    application: str, master: str, given: Mapping[str, str], *, encrypted: bool, frozen_s: float = FROZEN_S_MAX
) -> dict[str, str]:
    """Derives all settings of a session; those in the pipeline file take precedence."""
    own = {"spark.master": master, "spark.app.name": f"tidegate-{application}", **ENGINE_SETTINGS}
    own[f"{EXECUTOR_ENVIRONMENT}{FROZEN_S}"] = f"{frozen_s:g}"
    if encrypted:
        own |= ENCRYPTED_SPARK
        if master.startswith("local-cluster"):  # the whole cluster belongs to this session, so the secret is generated
            own[SECRET] = secrets.token_hex(32)
    if master.startswith("local"):  # workers run in the daemon's directory, where a queue.py would shadow Python's
        own[f"{EXECUTOR_ENVIRONMENT}PYTHONSAFEPATH"] = "1"
    return {**own, **given}


def derive_java_options(given: str, log4j: Path, more: Sequence[str] = ()) -> str:
    """Joins the engine's options and those of the pipeline file, which take precedence.

    A garbage collector in the file replaces the engine's. `more` are options for this machine only: the directory for
    temporary files and the class archive.
    """
    own = [option for option in JVM_OPTIONS if not (option.endswith("GC") and "GC" in given)]
    local = join_java_options([f"-Dlog4j2.configurationFile={log4j.absolute().as_uri()}", *own, *more])
    return f"{local} {given}".strip()


def join_java_options(options: Iterable[str]) -> str:
    """Joins options such that Spark splits them correctly.

    A path may contain a space, and both of Spark's splitters support double quotes.
    """
    return " ".join(map(_quote, options))


def _quote(option: str) -> str:
    if not any(one.isspace() or one in "\"'\\" for one in option):
        return option
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'
