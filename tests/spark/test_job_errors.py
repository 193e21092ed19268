"""Which line of a Spark error names the cause."""

from __future__ import annotations

from tidegate.spark.job_errors import describe_failure

CALL = "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe."


def test_a_slot_that_was_killed_before_it_registered_is_said_to_have_crashed() -> None:
    text = f"""{CALL}
: org.apache.spark.SparkException: Job aborted due to stage failure: Could not recover from a failed barrier \
ResultStage. Most recent failure reason: Stage failed because barrier task ResultTask(0, 0) finished unsuccessfully.
org.apache.spark.SparkException: Python worker exited unexpectedly (crashed):\x20

	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator$$anonfun$1.applyOrElse(PythonRunner.scala:1143)
"""
    assert describe_failure(text) == "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"


def test_of_a_stage_that_failed_the_reason_is_shown() -> None:
    reason = "Stage failed because barrier task ResultTask(0, 0) finished unsuccessfully."
    stage = "ResultStage 0 (collect at host.py:1) has failed the maximum allowable number of times: 1"
    text = f"{CALL}\n: org.apache.spark.SparkException: Job aborted due to stage failure: {stage}. Most recent failure "
    assert describe_failure(f"{text}reason: {reason}\njava.net.SocketException: Connection reset") == reason


def test_the_call_that_failed_is_not_its_reason() -> None:
    reason = "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
    assert describe_failure(f"{CALL}\n: {reason}\n\tat x.y(Z.scala:1)") == reason
    assert describe_failure(CALL) == CALL


def test_an_error_of_ours_counts_for_more_than_the_one_of_python_that_it_was_raised_from() -> None:
    """It names the place and the other end; only dotted names are in a traceback where a class is no builtin."""
    text = f"""{CALL}
: org.apache.spark.SparkException: Job aborted due to stage failure: Could not recover from a failed barrier \
ResultStage. Most recent failure reason: Stage failed because barrier task ResultTask(0, 1) finished unsuccessfully.
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "tidegate/slot/control_link.py", line 54, in __init__
    self._sock = socket.create_connection((host, port), timeout_s)
ConnectionRefusedError: [Errno 111] Connection refused

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "tidegate/slot/control_link.py", line 58, in __init__
    raise ControlLost(f"the daemon at {{host}}:{{port}} cannot be reached from this executor: {{error}}") from error
tidegate.slot.control_link.ControlLost: the daemon at 10.0.0.7:9200 cannot be reached from this executor: [Errno 111] \
Connection refused

	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1097)
"""
    said = "the daemon at 10.0.0.7:9200 cannot be reached from this executor: [Errno 111] Connection refused"
    assert describe_failure(text) == said


FROZEN_AT_ITS_START = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: ResultStage 0 (collect at host.py:395) has failed \
the maximum allowable number of times: 1. Most recent failure reason: Stage failed because barrier task ResultTask(0, \
0) finished unsuccessfully.
org.apache.spark.SparkException: EOFException occurred while reading the port number from \
tidegate.slot.fork_server's stdout.
\tat org.apache.spark.errors.SparkCoreErrors$.eofExceptionWhileReadPortNumberError(SparkCoreErrors.scala:55)
\tat org.apache.spark.api.python.PythonWorkerFactory.startDaemon(PythonWorkerFactory.scala:382)
"""


def test_what_spark_says_of_a_fork_server_that_was_killed_while_it_started_is_told_in_our_words() -> None:
    """By its guard, because it was frozen: Spark says only that a barrier task finished unsuccessfully."""
    assert describe_failure(FROZEN_AT_ITS_START).startswith(
        "the process that slots are forked from ended before it was ready"
    )
