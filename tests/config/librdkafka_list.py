"""Makes `tidegate/config/librdkafka.json` from the librdkafka that confluent-kafka carries.

`python -m tests.config.librdkafka_list > tidegate/config/librdkafka.json` after an update of confluent-kafka.
"""

from __future__ import annotations

import ctypes
import json
import re
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

SIDES = {"*": "both", "C": "consumer", "P": "producer", "C/P": "both"}


def read_table() -> str:
    """librdkafka's own description of its properties, as its CONFIGURATION.md has it."""
    files = metadata.files("confluent-kafka") or []
    (library,) = [file for file in files if Path(file.name).name.startswith("librdkafka-")]
    librdkafka = ctypes.CDLL(str(library.locate()))
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    with tempfile.NamedTemporaryFile() as target:
        stream = ctypes.c_void_p(libc.fopen(target.name.encode(), b"w"))
        librdkafka.rd_kafka_conf_properties_show(stream)
        libc.fclose(stream)
        return Path(target.name).read_text(encoding="utf-8")


def derive_list(table: str) -> dict[str, dict[str, Any]]:
    """Name -> side, type, range, alias_of. The first row of a name wins: it is the newer one."""
    found: dict[str, dict[str, Any]] = {}
    for line in table.splitlines():
        if "|" not in line or line.startswith(("#", "Property", "---")):
            continue
        name, side, span, _default, _importance, description = (part.strip() for part in line.split("|", 5))
        kind = re.search(r"\*Type: ([^*]*)\*", description)
        entry: dict[str, Any] = {"side": SIDES[side], "type": kind[1] if kind else "string", "range": span}
        if alias := re.match(r"Alias for `([^`]+)`", description):
            entry["alias_of"] = alias[1]
        found.setdefault(name, entry)
    return dict(sorted(found.items()))


def render_list(properties: dict[str, dict[str, Any]]) -> str:
    """One property a line, so that an update gives a readable difference."""
    lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in properties.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    print(render_list(derive_list(read_table())), end="")
