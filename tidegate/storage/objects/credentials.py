"""Credentials from a file that each process reads itself, again every few minutes: it may be replaced while we run.

The formats are those that the providers' own tools write: the shared credentials file of S3 and a connection string of
Azure. (Google's key files are read by obstore.)
"""

from __future__ import annotations

import configparser
import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

FRESH_FOR: Final = dt.timedelta(minutes=5)
FILE_BYTES_MAX: Final = 1 << 16
_PROFILE: Final = "default"


class CredentialsUnreadable(Exception):
    """The file cannot be read, or is none. Its text passes through obstore, and has nothing of what the file holds."""


class CredentialsFile(ABC):
    """What obstore calls for credentials."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self) -> Any:
        """Raises CredentialsUnreadable."""
        return {**self._parse(self.read()), "expires_at": dt.datetime.now(dt.UTC) + FRESH_FOR}

    def read(self) -> str:
        """Raises CredentialsUnreadable."""
        try:
            with Path(self.path).open(encoding="utf-8") as file:
                return file.read(FILE_BYTES_MAX)
        except OSError as error:
            raise self.refusal(f"cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise self.refusal("are no text") from None

    def refusal(self, problem: str) -> CredentialsUnreadable:
        """Made of words of ours."""
        return CredentialsUnreadable(
            f"the credentials in {self.path} (`checkpoints.storage.credentials_file`) {problem}; the daemon and all "
            "executors need the file, readable for their user"
        )

    @abstractmethod
    def _parse(self, text: str) -> Mapping[str, str | None]:
        """As obstore expects them. Raises CredentialsUnreadable."""


class SharedFile(CredentialsFile):
    """`aws_access_key_id`, `aws_secret_access_key` and, if it has one, `aws_session_token` of the profile `default`."""

    def _parse(self, text: str) -> Mapping[str, str | None]:
        parser = configparser.ConfigParser(interpolation=None, default_section="")
        try:
            parser.read_string(text)
            profile = parser[_PROFILE]
            return {
                "access_key_id": profile["aws_access_key_id"],
                "secret_access_key": profile["aws_secret_access_key"],
                "token": profile.get("aws_session_token"),
            }
        except (configparser.Error, KeyError):
            raise self.refusal(
                f"are no shared credentials file: [{_PROFILE}] with aws_access_key_id and aws_secret_access_key"
            ) from None


class ConnectionString(CredentialsFile):
    """`AccountName=...;AccountKey=...` or `...;SharedAccessSignature=...`, as the provider's portal shows it."""

    def find_account(self) -> str:
        """That it names; empty if none. Raises CredentialsUnreadable."""
        return _split(self.read()).get("AccountName", "")

    def _parse(self, text: str) -> Mapping[str, str | None]:
        parts = _split(text)
        if "AccountKey" in parts:
            return {"access_key": parts["AccountKey"]}
        if "SharedAccessSignature" in parts:
            return {"sas_token": parts["SharedAccessSignature"].lstrip("?")}
        raise self.refusal("are no connection string with an AccountKey or a SharedAccessSignature")


def _split(text: str) -> dict[str, str]:
    items = (item.partition("=") for item in text.strip().split(";"))
    return {name.strip(): value.strip() for name, equals, value in items if equals}
