"""Credentials from a file, which each process rereads every few minutes, since it may be replaced at run time.

The formats are those of the providers' own tools: the shared credentials file of S3 and a connection string of Azure.
(obstore reads Google's key files.)
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
    """The file is unreadable or invalid. The text passes through obstore and never contains contents of the file."""


class CredentialsFile(ABC):
    """A callable that provides credentials to obstore."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self) -> Any:
        """Returns the credentials. Raises CredentialsUnreadable."""
        return {**self._parse(self.read()), "expires_at": dt.datetime.now(dt.UTC) + FRESH_FOR}

    def read(self) -> str:
        """Reads the file. Raises CredentialsUnreadable."""
        try:
            with Path(self.path).open(encoding="utf-8") as file:
                return file.read(FILE_BYTES_MAX)
        except OSError as error:
            raise self.refusal(f"cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise self.refusal("are not text") from None

    def refusal(self, problem: str) -> CredentialsUnreadable:
        """Creates the error from Tidegate's own texts only."""
        return CredentialsUnreadable(
            f"the credentials in {self.path} (`checkpoints.storage.credentials_file`) {problem}; the daemon and all "
            "executors need the file, readable for their user"
        )

    @abstractmethod
    def _parse(self, text: str) -> Mapping[str, str | None]:
        """Parses the file into the form that obstore expects. Raises CredentialsUnreadable."""


class SharedFile(CredentialsFile):
    """The keys `aws_access_key_id`, `aws_secret_access_key` and optionally `aws_session_token` of the profile
    `default`.
    """

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
                f"are not a shared credentials file: [{_PROFILE}] with aws_access_key_id and aws_secret_access_key"
            ) from None


class ConnectionString(CredentialsFile):
    """`AccountName=...;AccountKey=...` or `...;SharedAccessSignature=...`, as the provider's portal shows it."""

    def find_account(self) -> str:
        """Returns the account name; empty if there is none. Raises CredentialsUnreadable."""
        return _split(self.read()).get("AccountName", "")

    def _parse(self, text: str) -> Mapping[str, str | None]:
        parts = _split(text)
        if "AccountKey" in parts:
            return {"access_key": parts["AccountKey"]}
        if "SharedAccessSignature" in parts:
            return {"sas_token": parts["SharedAccessSignature"].lstrip("?")}
        raise self.refusal("are not a connection string with an AccountKey or a SharedAccessSignature")


def _split(text: str) -> dict[str, str]:
    items = (item.partition("=") for item in text.strip().split(";"))
    return {name.strip(): value.strip() for name, equals, value in items if equals}
