"""What a daemon serves and writes: its HTTP port, and its log."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tidegate.settings.base import Settings
from tidegate.settings.fields import File, Host, choice, integer


class HttpSettings(Settings):
    """Metrics and probes."""

    host: Annotated[Host, Field(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, integer(0, 65535), Field(description="Port; 0 picks a free one.")] = 9095
    token_file: Annotated[
        File | None,
        Field(
            description="File with the token that `checkpoint`, `savepoint` and `stop` need; made, with mode 0600, "
            "when it is not there. Else the daemon makes a token at every start, and the commands find it as its user "
            "on its machine."
        ),
    ] = None
    read_token_file: Annotated[
        File | None,
        Field(
            description="File with a token that every question but the probes needs (or that of commands); made, with "
            "mode 0600, when it is not there. Without it whoever can connect may read, and nothing else."
        ),
    ] = None


class LoggingSettings(Settings):
    """Log output of the daemon and its slots."""

    format: Annotated[
        str, choice("auto", "text", "json"), Field(description="`auto`: text on a terminal, else JSON.")
    ] = "auto"
    level: Annotated[
        str, choice("debug", "info", "warning", "error"), Field(description="Lowest level that is written.")
    ] = "info"
