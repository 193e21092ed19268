"""Starts, bounds and kills a process that reads for one HTTP request; `answering.py` is its side."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

import msgspec

from tidegate.daemon.http.resources import ResourceRefused
from tidegate.daemon.reading.answering import ReadAnswer

logger = logging.getLogger(__name__)

DEADLINE_S: Final = 20.0
"""A request has 30 s in all."""
ANSWER_BYTES_MAX: Final = 32 << 20
UNAVAILABLE: Final = 503
_BROKEN: Final = "the reading process ended with code {code}; see the log"

A = TypeVar("A")


class ChildReader(Generic[A]):
    """Reads by running `module`, one request at a time. `answer` is the type that the module answers with.

    `statuses` are the HTTP statuses of errors by their codes; all others are 503.
    """

    def __init__(
        self,
        module: str,
        answer: type[A],
        statuses: Mapping[str, int] | None = None,
        *,
        deadline_s: float = DEADLINE_S,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> None:
        self._module = module
        self._answer = answer
        self._statuses = statuses or {}
        self._deadline_s = deadline_s
        self._answer_bytes_max = answer_bytes_max
        self._reads = False

    async def read(self, request: object) -> A:
        """Returns the answer. Raises ResourceRefused, also while another request is read."""
        if self._reads:
            raise ResourceRefused(UNAVAILABLE, "busy", "another request is in progress; try again")
        self._reads = True
        try:
            body = await self._run(msgspec.msgpack.encode(request))
        finally:
            self._reads = False
        answer = msgspec.msgpack.decode(body, type=ReadAnswer)
        if answer.refused is not None:
            status = self._statuses.get(answer.refused.code, UNAVAILABLE)
            raise ResourceRefused(status, answer.refused.code, answer.refused.message)
        return msgspec.convert(answer.value, self._answer)

    async def _run(self, request: bytes) -> bytes:
        # -P: no file in the current directory may shadow a module.
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", self._module, str(os.getpid())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "POLARS_MAX_THREADS": "1"},
        )
        try:
            return await asyncio.wait_for(self._talk(child, request), self._deadline_s)
        except TimeoutError as error:
            message = f"reading took more than {self._deadline_s:g} s; request less, or use the command"
            raise ResourceRefused(UNAVAILABLE, "too-slow", message) from error
        finally:
            if child.returncode is None:
                child.kill()
            await child.wait()

    async def _talk(self, child: asyncio.subprocess.Process, request: bytes) -> bytes:
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None, "they are pipes"
        child.stdin.write(request)
        child.stdin.close()
        said = asyncio.ensure_future(_read_all(child.stderr, ANSWER_BYTES_MAX))
        body = await _read_all(child.stdout, self._answer_bytes_max)
        last = (await said).decode(errors="replace").strip().rpartition("\n")[2]
        code = await child.wait()
        if code:
            logger.error("%s ended with code %d: %s", self._module, code, last)
            raise ResourceRefused(500, "internal-error", _BROKEN.format(code=code))
        return body


async def _read_all(stream: asyncio.StreamReader, bytes_max: int) -> bytes:
    """Reads a stream to its end. Raises ResourceRefused if it is too long."""
    parts: list[bytes] = []
    size = 0
    while part := await stream.read(1 << 16):
        parts.append(part)
        size += len(part)
        if size > bytes_max:
            raise ResourceRefused(UNAVAILABLE, "too-large", f"the answer has more than {bytes_max >> 20} MiB")
    return b"".join(parts)
