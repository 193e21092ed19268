"""Settings of the deployment: checkpoints, savepoints, state, restarts, slots, the HTTP port, logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from tidegate.config.fields.base import Settings
from tidegate.config.fields.foreign_terms import COMMAND_TERMS
from tidegate.config.fields.types import (
    Directories,
    Directory,
    File,
    GiveUpAfter,
    GiveUpLimit,
    Host,
    Keys,
    Names,
    Unaligned,
    UnalignedMode,
    ValueCheck,
    check_address,
    choice,
    duration,
    integer,
    refusal,
    require_text,
    size,
)
from tidegate.storage.base import StorageOptions

_TEXT = {"type": "string"}
_FROM_OUTSIDE = (
    "credentials do not belong in a pipeline file: set them in the environment of the daemon and of the executors, "
    "give both a role, or name a file in `credentials_file`"
)


def _endpoint(value: object) -> str:
    return check_address(value, "https://minio.example:9000", _FROM_OUTSIDE)


def _word(value: object) -> str:
    text = require_text(value, "a name")
    if len(text) > 100 or not text.replace("-", "").replace(".", "").isalnum() or not text.isascii():
        raise refusal(f"`{text[:60]}` is not a name", "letters, digits, `-` and `.`")
    return text


class StorageSettings(Settings):
    """How the object store is reached. What is left out comes from the environment: `AWS_REGION`, `AWS_ENDPOINT_URL`,
    `AZURE_STORAGE_ACCOUNT_NAME` and so on, and so do credentials where no `credentials_file` is named.
    """

    TITLE: ClassVar[str] = "Object stores"
    INSIDE: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            "access_key", "access_key_id", "secret_key", "secret_access_key", "session_token", "account_key",
            "sas_token", "credentials", "username", "password", "token",
        ),
        _FROM_OUTSIDE,
    )  # fmt: skip

    endpoint: Annotated[
        str | None,
        ValueCheck(_endpoint, {**_TEXT, "examples": ["https://minio.example:9000"]}),
        Field(description="For `s3://` and `az://`: the address of a store that is not the provider's own."),
    ] = None
    region: Annotated[
        str | None, ValueCheck(_word, _TEXT), Field(description="For `s3://`: the region of the bucket.")
    ] = None
    account: Annotated[str | None, ValueCheck(_word, _TEXT), Field(description="For `az://`: the storage account.")] = (
        None
    )
    credentials_file: Annotated[
        File | None,
        Field(
            description="A file with credentials that the daemon and every executor read: for `s3://` a shared "
            "credentials file (profile `default`), for `gs://` a key file, for `az://` a connection string."
        ),
    ] = None
    ca: Annotated[File | None, Field(description="Certificates to trust in addition to the machine's, in PEM.")] = None

    @property
    def options(self) -> StorageOptions:
        """The options in the form that stores accept."""
        return StorageOptions(
            endpoint=self.endpoint or "",
            region=self.region or "",
            account=self.account or "",
            credentials_file=self.credentials_file or "",
            ca=self.ca or "",
        )


class CheckpointSettings(Settings):
    """When checkpoints are taken, what they guarantee, and where they are stored."""

    INSIDE: ClassVar[Mapping[str, str]] = COMMAND_TERMS
    directory: Annotated[
        Directory, Field(description="Where checkpoints and the journal are stored; shared by daemon and executors.")
    ]
    interval_ms: Annotated[
        int,
        duration("10ms", "1h"),
        Field(alias="interval", description="Time between checkpoints. Output becomes visible once per interval."),
    ] = 1000
    mode: Annotated[
        str, choice("exactly-once", "at-least-once"), Field(description="Guarantee for readers of the sinks.")
    ] = "exactly-once"
    unaligned: Annotated[
        UnalignedMode,
        Field(
            description="Whether barriers may overtake records: `never`, `always`, or `after 5s` of waiting (10ms to "
            "1h). Not with `mode: at-least-once`."
        ),
    ] = Unaligned()
    timeout_ms: Annotated[
        int, duration("1s", "24h"), Field(alias="timeout", description="A checkpoint that takes longer fails.")
    ] = 600_000
    min_pause_ms: Annotated[
        int,
        duration("0s", "1h"),
        Field(alias="min_pause", description="Pause between the end of one checkpoint and the start of the next."),
    ] = 0
    max_concurrent: Annotated[
        int, integer(1, 16), Field(description="Checkpoints in progress at the same time; savepoints are extra.")
    ] = 1
    retained: Annotated[int, integer(1, 1000), Field(description="Completed checkpoints that are kept.")] = 3
    tolerable_failures: Annotated[
        int,
        integer(0, 1000),
        Field(description="Number of failed checkpoints in a row that are tolerated; one more restarts the attempt."),
    ] = 3
    transaction_timeout_ms: Annotated[
        int,
        duration("1s", "24h"),
        Field(
            alias="transaction_timeout",
            description="After this time the broker aborts an open transaction. At most its "
            "`transaction.max.timeout.ms`, and more than `timeout`, `restart.max` and the longer of `interval` "
            "and `min_pause` together.",
        ),
    ] = 900_000

    storage: Annotated[
        StorageSettings, Field(description="How the object store of `directory` is reached, if it is one.")
    ] = StorageSettings()


class SavepointSettings(Settings):
    """Where savepoints may be written."""

    INSIDE: ClassVar[Mapping[str, str]] = {
        "directory": "name it on the command line, `tidegate savepoint FILE DIRECTORY`, below one of `savepoints.roots`"
    }
    roots: Annotated[
        Directories,
        Field(
            description="Directories below which `tidegate savepoint FILE DIRECTORY` may write, in addition to "
            "the checkpoint directory."
        ),
    ] = ()


class StateSettings(Settings):
    """Where keyed state lives while the pipeline runs."""

    INSIDE: ClassVar[Mapping[str, str]] = {"ttl": "give each step with `aggregate` its own: `ttl: 30d`"}
    backend: Annotated[
        str,
        choice("memory", "rocksdb"),
        Field(
            description="Where a slot keeps keyed state: in `memory`, or with `rocksdb` in the executor's "
            "temporary directory (`TMPDIR`), for state that is larger than memory (up to 128 MiB of it for each "
            "state of a step and slot: `tidegate docs deploy`). Checkpoints are the same for both, so it may "
            "change at any restart."
        ),
    ] = "memory"
    local_copies: Annotated[
        str,
        choice("auto", "always", "never"),
        Field(
            description="Whether slots keep copies of the state files that they upload, in the executor's "
            "temporary directory (`TMPDIR`), so that a restart on the same machine need not download them; "
            "`auto`: if `checkpoints.directory` is an object store."
        ),
    ] = "auto"
    local_copies_max_bytes: Annotated[
        int,
        size("1MiB", "100TiB"),
        Field(
            alias="local_copies_max",
            description="Limit for all copies on one machine together. Plan for twice the size of the state: as "
            "it is restored, and as the first checkpoint after that. A tenth of the disk always stays free.",
        ),
    ] = 1 << 30


class RestartSettings(Settings):
    """How failed attempts are retried."""

    initial_ms: Annotated[
        int,
        duration("1ms", "1h"),
        Field(alias="initial", description="Wait before the second restart in a row; the first one is immediate."),
    ] = 1000
    max_ms: Annotated[int, duration("1ms", "24h"), Field(alias="max", description="The wait doubles up to this.")] = (
        60_000
    )
    give_up_after: Annotated[
        GiveUpAfter, Field(description="Crash-loop limit: this many failures within this time end the daemon.")
    ] = GiveUpLimit(20, 1_800_000)


class RuntimeSettings(Settings):
    """Slots and the daemon itself."""

    encryption: Annotated[
        str,
        choice("auto", "always", "never"),
        Field(
            description="Whether traffic between daemon, slots and Spark is encrypted; `auto`: if it leaves the "
            "machine."
        ),
    ] = "auto"

    heartbeat_interval_ms: Annotated[
        int,
        duration("10ms", "1m"),
        Field(alias="heartbeat_interval", description="How often a slot reports that it is alive."),
    ] = 1000
    heartbeat_timeout_ms: Annotated[
        int,
        duration("100ms", "1h"),
        Field(
            alias="heartbeat_timeout",
            description="A slot that is silent for longer counts as lost; at least twice `heartbeat_interval`.",
        ),
    ] = 10_000
    start_timeout_ms: Annotated[
        int,
        duration("1s", "1h"),
        Field(
            alias="start_timeout",
            description="Time for Spark to bring up all slots, and for them to restore their state.",
        ),
    ] = 120_000
    shutdown_grace_ms: Annotated[
        int,
        duration("0s", "1h"),
        Field(alias="shutdown_grace", description="Time for the final checkpoint after SIGTERM, SIGINT or SIGHUP."),
    ] = 30_000


class HttpTlsSettings(Settings):
    """TLS of the HTTP port, and what clients may do by their certificates. All files are PEM, and read again when they
    have changed.
    """

    TITLE: ClassVar[str] = "TLS of HTTP"
    certificate: Annotated[File, Field(description="The daemon's certificate, with the chain to its authority.")]
    key: Annotated[File, Field(description="Its private key, not encrypted; readable only by the daemon's user.")]
    client_ca: Annotated[
        File | None,
        Field(
            description="Authorities of clients' certificates. If it is set, everything but the probes needs "
            "such a certificate, or a token."
        ),
    ] = None
    read: Annotated[
        Names | None,
        Field(
            description="Who may read: common names, DNS names or URIs of certificates. If it is not set, all "
            "certificates of `client_ca`."
        ),
    ] = None
    operate: Annotated[
        Names | None,
        Field(
            description="Who may also give commands, including from other machines. If it is not set, no "
            "certificate may."
        ),
    ] = None


class HttpSettings(Settings):
    """Metrics and probes."""

    TITLE: ClassVar[str] = "HTTP"
    host: Annotated[Host, Field(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, integer(0, 65535), Field(description="Port; 0 picks a free one.")] = 9095
    token_file: Annotated[
        File | None,
        Field(
            description="File with the token that `checkpoint`, `savepoint` and `stop` need; created with mode "
            "0600 if it does not exist. If it is not set, the daemon makes a token at every start, which "
            "commands of its user on its machine find."
        ),
    ] = None
    read_token_file: Annotated[
        File | None,
        Field(
            description="File with the token for reading. Everything but the probes needs it, or the command token. "
            "Created with mode 0600 if it does not exist. If it is not set, anyone who can connect may "
            "read, but not give commands."
        ),
    ] = None
    redact: Annotated[
        Keys,
        Field(
            description="Columns that are shown as `***` where rows are shown: in taps, dead letters and the state. "
            "Fields of structs and keys of maps with such a name are masked as well, in upper or lower case. Columns "
            "made with `secret()` are always masked."
        ),
    ] = ()
    tls: Annotated[
        HttpTlsSettings | None,
        Field(description="TLS, and roles by certificate. Without it the port uses plain HTTP."),
    ] = None


class LoggingSettings(Settings):
    """Log output of the daemon and its slots."""

    format: Annotated[
        str, choice("auto", "text", "json"), Field(description="`auto`: text on a terminal, otherwise JSON.")
    ] = "auto"
    level: Annotated[
        str, choice("debug", "info", "warning", "error"), Field(description="Lowest level that is written.")
    ] = "info"
