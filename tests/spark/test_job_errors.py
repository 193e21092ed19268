"""Which line of a Spark error names the cause."""

from __future__ import annotations

from tidegate.spark.host import describe_failure

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
