"""Interprets Spark's errors: the line that a person needs, and the resulting error of the daemon."""

from __future__ import annotations

import re
from typing import Final

from tidegate.errors import AttemptFailed, PipelineStopped, TidegateError
from tidegate.slot.faults import lacking_module
from tidegate.spark.versions import here

OTHER_PYTHON: Final = "Python in worker has different version"
"""Part of the message of every Spark version; the Python versions follow it."""
NOT_FOUND: Final = re.compile(r"finding module specification for .* \((ModuleNotFoundError: .*)\)$")
"""The message of an interpreter that lacks the module which executors fork slots from, or a parent package of it."""
OURS: Final = re.compile(r"tidegate(?:\.\w+)+: (.+)")
"""The last line of a traceback that ends with an error of Tidegate."""
SERVER_GONE: Final = "EOFException occurred while reading the port number"
"""The message of Spark if the process that slots are forked from ended while it was starting."""
CAUSE: Final = re.compile(r"^Caused by: (.+)$", re.MULTILINE)


class ExecutorsRunAnotherPython(PipelineStopped):
    """The executors run another minor version of Python: Spark refuses every task of any attempt."""

    code = "executors-run-another-python"
    exit_code = 2


class SparkJobEnded(AttemptFailed):
    """The barrier job ended unexpectedly."""

    code = "spark-job-ended"


def derive_job_error(text: str | None) -> TidegateError:
    """Derives the error for the end of the job: a missing module needs a person, anything else another attempt."""
    if text is not None and text.startswith(("ModuleNotFoundError", "ImportError")):
        return lacking_module("the executors cannot start a slot", text)
    if text is not None and OTHER_PYTHON in text:
        return ExecutorsRunAnotherPython(
            f"the executors cannot start a slot: {text}; give them Python {here()}, with Tidegate and its packages, or "
            "name such an interpreter with spark.pyspark.python"
        )
    return SparkJobEnded(f"the Spark job of the slots ended: {text or 'all slots returned without being asked to'}")


def describe_failure(text: str) -> str:
    """Returns the line of a Spark error that names the cause: the last Python error, else the first line.

    A line about the call that failed may precede it.
    """
    lines = [line.strip().removeprefix(": ") for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        del lines[0]
    for line in lines:
        if OTHER_PYTHON in line:
            return line[line.index(OTHER_PYTHON) :].partition(", PySpark")[0]
        if (missing := NOT_FOUND.search(line)) is not None:
            return missing[1]
    for line in reversed(lines):
        if (ours := OURS.match(line)) is not None:
            return ours[1]
        head = line.split(":", 1)[0]
        if head.endswith(("Error", "Exception")) and " " not in head and "." not in head:
            return line
    if any(SERVER_GONE in line for line in lines):
        return (
            "the process that slots are forked from ended before it was ready: it was killed (memory?), or had been "
            "frozen (SIGSTOP) for longer than runtime.heartbeat_timeout"
        )
    crashed = [line for line in lines if "worker exited unexpectedly" in line]
    interesting = [line for line in lines if "ExecutorLostFailure" in line or "Could not recover" in line]
    found = (crashed or interesting or lines or ["unknown Spark failure"])[0]
    return (found.partition("Most recent failure reason: ")[2] or found)[:500].rstrip(" :")


def describe_refusal(error: Exception) -> str:
    """Describes why a session does not start: the result of `describe_failure`, and further causes from Java."""
    text = str(error) or type(error).__name__
    said = describe_failure(text)
    for cause in CAUSE.findall(text):
        if (cause.partition(": ")[2] or cause) not in said:
            said = f"{said.rstrip('.')}, caused by {cause[:500]}"
    return said.rstrip(".")
