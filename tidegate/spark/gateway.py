"""Starts the JVM of Spark's driver.

It does what pyspark's `launch_gateway` does, with two differences. Python imports pyspark while the JVM starts. And the
JVM is in a process group of its own, so that a signal from the terminal reaches only the daemon.
"""

from __future__ import annotations

import os
import shlex
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tidegate.spark.versions import read_spark

POLL_S: Final = 0.01
_NUMBERS: Final = struct.Struct(">ii")
"""The port, and the length of the secret that follows."""
_ADDRESS: Final = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")


class DriverJvm:
    """The process of a driver's JVM. It ends when this process does, because that closes its standard input."""

    def __init__(self, settings: Mapping[str, str], output: int, directory: Path) -> None:
        """Starts it with these settings, which every user can read on its command line.

        `output` receives what it prints, and the private `directory` its address. Raises OSError.
        """
        home = os.environ.get("SPARK_HOME") or read_spark().home
        self._answer = directory / "gateway"
        options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        kind = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        self.process = subprocess.Popen(
            [f"{home}/bin/spark-submit", *options, *kind],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={
                **os.environ,
                "SPARK_HOME": home,  # else a script starts Python to find it
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._answer),
            },
            process_group=0,
        )

    def connect(self) -> Any:
        """Waits for the JVM and returns py4j's gateway to it. Raises ChildProcessError if the JVM ends."""
        from pyspark.java_gateway import launch_gateway

        try:
            while not self._answer.exists():
                if self.process.poll() is not None:
                    raise ChildProcessError(f"Java ended with code {self.process.returncode} before it was ready")
                time.sleep(POLL_S)
            answer = self._answer.read_bytes()
            port, length = _NUMBERS.unpack_from(answer)
            address = (str(port), answer[_NUMBERS.size :][:length].decode())
        finally:
            self._answer.unlink(missing_ok=True)
        os.environ.update(zip(_ADDRESS, address, strict=True))
        try:
            gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]  # pyspark has no types
        finally:
            for name in _ADDRESS:
                del os.environ[name]
        gateway.proc = self.process
        return gateway
