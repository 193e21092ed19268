"""Certificates for tests: an authority created with `openssl`, and the certificates that it signs.

All files are PEM.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from tests.waiting import PATIENCE_S

DAYS: Final = 30
"""How long certificates are valid: long enough that `validate` does not warn of them."""


class Identity(msgspec.Struct, frozen=True):
    """A certificate with its key."""

    certificate: Path
    key: Path

    def text(self) -> str:
        """Returns key and certificate, as a broker's PEM key store requires them."""
        return self.key.read_text("ascii") + self.certificate.read_text("ascii")

    def certificate_first(self) -> str:
        """Returns certificate and key, as a daemon's slots receive them."""
        return self.certificate.read_text("ascii") + self.key.read_text("ascii")


class Authority:
    """A certificate authority in a directory. It uses elliptic curves, because generating RSA keys is slow."""

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._own = Identity(directory / "ca.pem", directory / "ca-key.pem")
        # Python 3.13 and newer reject an authority whose certificate does not name what its key may be used for.
        lasting = ["-days", str(DAYS), "-subj", f"/CN={name}", "-addext", "keyUsage=digitalSignature,keyCertSign"]
        self._openssl("req", "-x509", *_NEW_KEY, str(self._own.key), *lasting, "-out", str(self.file))

    @property
    def file(self) -> Path:
        """The authority's own certificate, for `ssl.ca.location`."""
        return self._own.certificate

    def sign(
        self, name: str, subject_alternatives: str = "IP:127.0.0.1", password: str = "", days: int = DAYS
    ) -> Identity:
        """Creates a key and a certificate for it, valid for servers and clients. A password encrypts the key."""
        made = Identity(self._directory / f"{name}.pem", self._directory / f"{name}-key.pem")
        signed = ["-CA", str(self.file), "-CAkey", str(self._own.key), "-days", str(days), "-subj", f"/CN={name}"]
        extension = ["-addext", f"subjectAltName={subject_alternatives}", "-addext", "basicConstraints=CA:FALSE"]
        self._openssl("req", "-x509", *_NEW_KEY, str(made.key), *signed, *extension, "-out", str(made.certificate))
        if password:
            locked = self._directory / f"{name}-locked-key.pem"
            self._openssl("pkcs8", "-topk8", "-in", str(made.key), "-passout", f"pass:{password}", "-out", str(locked))
            return Identity(made.certificate, locked)
        return made

    @staticmethod
    def _openssl(*arguments: str) -> None:
        ran = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert ran.returncode == 0, ran.stderr


_NEW_KEY = (
    "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-sha256", "-keyout",
)  # fmt: skip


@cache
def make_channel_key(name: str = "tidegate") -> str:
    """Creates a channel key as `tidegate.slot.channel_sockets` does, a different one for each name."""
    with TemporaryDirectory() as directory:
        made = Authority(Path(directory), name)
        return Identity(made.file, Path(directory) / "ca-key.pem").certificate_first()
