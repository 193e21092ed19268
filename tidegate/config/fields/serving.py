"""The HTTP port of a daemon, and its log."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from tidegate.config.fields.base import Settings
from tidegate.config.fields.types import File, Host, Keys, Names, choice, integer


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
