"""Classification of obstore's errors: whether a retry may help, and a message without secrets. Retries with a deadline.

obstore has few error classes, with a text that contains the request, the status and the store's answer. Answers repeat
access keys and signatures, and the query of an address may be signed, so only status, code and message are used.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, TypeVar

import msgspec

from tidegate.clock import SYSTEM_CLOCK, Clock
from tidegate.storage.base import ObjectMissing, StorageError


class FailureKindOfStore(Enum):
    """How the caller handles a failure."""

    ABSENT = auto()
    """There is no such object."""
    TAKEN = auto()
    """The name exists, or another writer is creating it."""
    PASSING = auto()
    """A retry may succeed. It is unknown whether this request took effect."""
    LASTING = auto()
    """A person has to resolve it."""


class StoreFailure(msgspec.Struct, frozen=True):
    """One failed request."""

    kind: FailureKindOfStore
    reason: str
    remedy: str = ""
    status: int = 0


_STATUS: Final = re.compile(r"status code: (\d{3}) ?([A-Za-z ]*)")
_CODE: Final = re.compile(r"<Code>([A-Za-z0-9._-]{1,80})</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<>\n]{1,200})")
_HTTP_KIND: Final = re.compile(r"HttpError \{\s*kind: (\w+)")
_CAUSE: Final = re.compile(r"\b(dns error|tcp connect error|ConnectionRefused|invalid peer certificate: \w+)")
_UNREADABLE: Final = re.compile(r"CredentialsUnreadable: ([^\n]+)")
_METADATA: Final = re.compile(r"169\.254\.\d+\.\d+|metadata\.google\.internal|fd00:ec2::254")

_PASSING_STATUS: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 507, 509})
_PASSING_CODES: Final = frozenset({"RequestTimeout", "SlowDown", "InternalError", "ServerBusy", "OperationTimedOut"})
_NO_BUCKET: Final = frozenset({"NoSuchBucket", "ContainerNotFound"})
_WRONG_KEY: Final = frozenset({
    "InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthenticationFailed", "ExpiredToken", "InvalidToken",
    "AuthorizationHeaderMalformed",
})  # fmt: skip
_WRONG_REGION: Final = frozenset({"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed"})

NO_CREDENTIALS: Final = (
    "no credentials were found: set them in the environment of the daemon and of the executors, give both a role, or "
    "name a file that both have in `checkpoints.storage.credentials_file`; a command that gets an address finds "
    "that file by `--of FILE`"
)
NO_ACCOUNT: Final = (
    "set `account` in `checkpoints.storage`, or AZURE_STORAGE_ACCOUNT_NAME in the environment of the daemon and of the "
    "executors; a command that gets an address finds the account of a pipeline file by `--of FILE`"
)
_WORDS: Final = {
    "Timeout": "no answer in time",
    "Connect": "no connection",
    "Request": "the connection broke",
    "Interrupted": "the answer broke off",
    "Decode": "the answer is not HTTP",
}


def judge(error: Exception) -> StoreFailure:
    """Classifies an exception raised by obstore."""
    text = str(error)
    head, _, details = text.partition("\n\nDebug source:")
    status = _STATUS.search(head)
    if status is not None:
        return _judge_status(type(error).__name__, int(status[1]), status[2].strip(), head)
    if isinstance(error, FileNotFoundError):
        return StoreFailure(FailureKindOfStore.ABSENT, "not found", status=404)
    if type(error).__name__ in ("AlreadyExistsError", "PreconditionError", "NotModifiedError"):
        return StoreFailure(FailureKindOfStore.TAKEN, "it exists")
    unreadable = _UNREADABLE.search(head)
    if unreadable is not None:  # the file may just be being replaced
        return StoreFailure(FailureKindOfStore.PASSING, unreadable[1])
    found = _HTTP_KIND.search(details)
    if found is not None:
        cause = _CAUSE.search(details)
        reason = _WORDS.get(found[1], "the request failed") + (f" ({cause[1]})" if cause else "")
        if _METADATA.search(head):
            return StoreFailure(FailureKindOfStore.PASSING, f"no credentials from a role: {reason}", NO_CREDENTIALS)
        if cause is not None and cause[1].startswith("invalid peer"):
            return StoreFailure(
                FailureKindOfStore.LASTING, reason, "name the certificates to trust in `checkpoints.storage.ca`"
            )
        return StoreFailure(
            FailureKindOfStore.PASSING, reason, "check the store, the network, and `checkpoints.storage.endpoint`"
        )
    return _judge_rest(error, head)


def _judge_status(name: str, status: int, phrase: str, head: str) -> StoreFailure:
    code = (_CODE.search(head) or ("", ""))[1]
    message = (_MESSAGE.search(head) or ("", ""))[1].rstrip(". ")
    said = ": ".join(filter(None, (f"{status} {phrase}".strip(), code, message)))
    if _METADATA.search(head):
        return StoreFailure(
            FailureKindOfStore.LASTING, f"no credentials from a role: {status} {phrase}", NO_CREDENTIALS, status
        )
    if name in ("AlreadyExistsError", "PreconditionError", "NotModifiedError"):
        return StoreFailure(FailureKindOfStore.TAKEN, said, status=status)
    if status == 404 and (code in _NO_BUCKET or "bucket" in message.lower()):
        return StoreFailure(FailureKindOfStore.LASTING, said, "create it, or correct `checkpoints.directory`", status)
    if status == 404:
        return StoreFailure(FailureKindOfStore.ABSENT, said, status=status)
    if status in _PASSING_STATUS or code in _PASSING_CODES:
        return StoreFailure(
            FailureKindOfStore.PASSING, said, "see what the store reports; starting again is safe", status
        )
    return StoreFailure(FailureKindOfStore.LASTING, said, _remedy(status, code), status)


def _remedy(status: int, code: str) -> str:
    if code == "RequestTimeTooSkewed":
        return "set the clock of this machine"
    if code in _WRONG_REGION or status in (301, 307, 308):
        return "set the region of the bucket in `checkpoints.storage.region`"
    if code in _WRONG_KEY:
        return "check the credentials of this process"
    if status in (401, 403):
        return (
            "allow these credentials to read, write, delete and list below the prefix "
            "(`tidegate docs operations/object-stores`, Credentials)"
        )
    if status in (405, 501):
        return "the store lacks an operation that checkpoints need: choose another one"
    return "check the address and `checkpoints.storage`"


def _judge_rest(error: Exception, head: str) -> StoreFailure:
    """Classifies errors without a status: missing credentials, and settings rejected before a request."""
    line = re.sub(r"\?\S*", "?...", head.splitlines()[0] if head else type(error).__name__)[:200]
    if _METADATA.search(head) or "redential" in head:
        return StoreFailure(FailureKindOfStore.LASTING, "no credentials", NO_CREDENTIALS)
    if "Account must be specified" in head:
        return StoreFailure(FailureKindOfStore.LASTING, "no storage account is named", NO_ACCOUNT)
    return StoreFailure(FailureKindOfStore.LASTING, line, "check `checkpoints.storage`")


def describe(location: str, operation: str, name: str, failure: StoreFailure, tried_s: float) -> StorageError:
    """Creates the error that the storage finally raises."""
    if failure.kind is FailureKindOfStore.ABSENT:
        return ObjectMissing(f"{location}: there is no {name}", location=location, name=name)
    passing = failure.kind is not FailureKindOfStore.LASTING
    how_long = f" (tried for {tried_s:.0f} s)" if passing else ""
    remedy = f"; {failure.remedy}" if failure.remedy else ""
    return StorageError(
        f"{location}: cannot {operation} {name}: {failure.reason}{how_long}{remedy}",
        location=location,
        operation=operation,
        name=name,
        lasting=not passing,
    )


T = TypeVar("T")


class RetryLimits(msgspec.Struct, frozen=True):
    """Timeouts of requests. A call lasts at most its deadline plus one request."""

    request_s: float = 10.0
    deadline_s: float = 30.0
    large_request_s: float = 120.0
    """For writing more than LARGE_BYTES."""
    large_deadline_s: float = 240.0
    bulk_request_s: float = 30.0
    """For deleting many objects."""
    bulk_deadline_s: float = 60.0
    first_pause_s: float = 0.1
    longest_pause_s: float = 3.0


LIMITS: Final = RetryLimits()


class Failed(Exception):
    """A failed try that the code around a request has detected, rather than obstore."""

    def __init__(self, failure: StoreFailure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class Tries:
    """Retries of one storage. `dice` returns random numbers from 0 to 1, so that the pauses of many slots do not
    coincide.
    """

    def __init__(
        self,
        location: str,
        limits: RetryLimits,
        errors: tuple[type[Exception], ...],
        clock: Clock = SYSTEM_CLOCK,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._location = location
        self._limits = limits
        self._errors: tuple[type[Exception], ...] = (*errors, Failed)
        self._clock = clock
        self._dice = dice

    def run(self, operation: str, name: str, action: Callable[[], T], deadline_s: float = 0.0) -> T:
        """Returns the result of `action`, which may run several times. Raises StorageError."""
        began = self._clock.monotonic()
        deadline = began + (deadline_s or self._limits.deadline_s)
        pause = self._limits.first_pause_s
        while True:
            try:
                return action()
            except self._errors as error:
                failure = error.failure if isinstance(error, Failed) else judge(error)
                now = self._clock.monotonic()
                if failure.kind is not FailureKindOfStore.PASSING or now + pause >= deadline:
                    raise describe(self._location, operation, name, failure, now - began) from None
            self._clock.sleep(pause * (0.5 + self._dice() / 2))
            pause = min(2 * pause, self._limits.longest_pause_s)
