"""Compiles the text of `.proto` files to descriptors, with Google's compiler from the extra `proto` (ADR 50).

The compiler runs in a process of its own, since it writes errors to standard error, and its input is a file of a user
or of the registry. Only the daemon and commands compile; slots get descriptors.

Schemas also import files that registries have in addition to Google's own, and that are in no subject (`BUILT_IN`). The
library does not contain them. They are short, so they are listed here, as proto3. The fields of a message have the
numbers 1, 2, 3 ... in this order, the values of an enum 0, 1, 2 ...
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, Final

from tidegate.formats.contract import FormatRefusal

EXTRA: Final = "proto"
COMPILER: Final = "grpc_tools"
MISSING: Final = (
    f"`pip install 'tidegate[{EXTRA}]'` where the daemon and `validate` run, or compile it: "
    "`protoc --include_imports --descriptor_set_out=order.desc order.proto`"
)
COMPILE_S: Final = 60.0
ERRORS_SHOWN: Final = 3

_MAIN: Final = "tidegate-schema.proto"
"""Name of the compiled file; a file that is imported has another one."""
_GIVEN: Final = "given.desc"
_PLACE: Final = re.compile(r"^(?P<file>.*?):(?P<line>[0-9]+):(?P<column>[0-9]+): (?P<told>.*)$")
_META: Final = """\
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
"""`confluent/meta.proto`, which no registry returns. Its options are ignored."""


def has_compiler() -> bool:
    """Returns whether the extra is installed."""
    return find_spec(COMPILER) is not None


def compile_text(
    text: bytes,
    *,
    directories: Sequence[Path] = (),
    texts: Mapping[str, str] | None = None,
    descriptors: Sequence[Any] = (),
) -> list[Any]:
    """Compiles a file. Returns its descriptor after those of everything that it imports. Raises FormatRefusal.

    :param directories: where imported files are, the nearest one first.
    :param texts: imported files by the names under which they are imported.
    :param descriptors: imported files that are compiled already.
    """
    from google.protobuf import descriptor_pb2

    if not has_compiler():
        raise FormatRefusal("it is text of a `.proto` file, and the compiler is not installed", MISSING)
    with tempfile.TemporaryDirectory(prefix="tidegate-proto-") as folder:
        own = Path(folder)
        (own / _MAIN).write_bytes(text)
        for name, imported in {"confluent/meta.proto": _META, **(texts or {})}.items():
            _write(own, name, imported)
        known = {one.name for one in descriptors}
        given = [*descriptors, *(built_in_file(name) for name in sorted(BUILT_IN - known))]
        (own / _GIVEN).write_bytes(descriptor_pb2.FileDescriptorSet(file=given).SerializeToString())
        answer = _run(own, directories)
    return list(descriptor_pb2.FileDescriptorSet.FromString(answer).file)


def _write(own: Path, name: str, text: str) -> None:
    """Writes an imported file below a directory. Raises FormatRefusal for a name that leads out of it."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.name or "\0" in name:
        raise FormatRefusal(f"it imports `{name[:100]}`, which is not a file name", "name another schema")
    (own / path).parent.mkdir(parents=True, exist_ok=True)
    (own / path).write_text(text, encoding="utf-8")


def _run(own: Path, directories: Sequence[Path]) -> bytes:
    command = [
        sys.executable,
        "-P",
        "-m",
        f"{COMPILER}.protoc",
        "--include_imports",
        "--descriptor_set_out=/dev/stdout",
    ]
    command += [f"-I{one}" for one in (own, *directories)]
    command += [f"--descriptor_set_in={own / _GIVEN}", str(own / _MAIN)]
    try:
        found = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMPILE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FormatRefusal(f"the compiler did not run: {error}", MISSING) from error
    if found.returncode:
        lines = found.stderr.decode("utf-8", "replace").splitlines()
        raise FormatRefusal(_render_errors(lines, (own, *directories)), _remedy_of(lines))
    return found.stdout


def _render_errors(lines: Sequence[str], directories: Sequence[Path]) -> str:
    """Returns the first errors of one file, with line and column. Those of other files follow from them."""
    places = [place for line in lines if (place := _PLACE.match(line)) and not place["told"].startswith("warning:")]
    if not places:
        return "; ".join(lines[:ERRORS_SHOWN]) or "the compiler failed without a reason"
    name = _shorten(places[0]["file"], directories)
    errors = [
        f"line {place['line']}, column {place['column']}: {place['told'].rstrip('.')}"
        for place in places
        if place["file"] == places[0]["file"]
    ]
    return ("" if name == _MAIN else f"{name}, ") + "; ".join(errors[:ERRORS_SHOWN])


def _shorten(file: str, directories: Sequence[Path]) -> str:
    """Returns a path relative to the outermost directory that contains it."""
    return next(
        (str(Path(file).relative_to(one)) for one in reversed(directories) if Path(file).is_relative_to(one)), file
    )


def _remedy_of(lines: Sequence[str]) -> str:
    if any("File not found" in line for line in lines):
        return (
            "imports are searched in the directory of the file and in those above it, up to that of the pipeline file"
        )
    return "correct the file"


# -- files that registries have ----------------------------------------------------------------------------------------


_DATE: Final = "int32 year, int32 month, int32 day"
_TIME: Final = "int32 hours, int32 minutes, int32 seconds, int32 nanos"
_MESSAGES: Final = {
    "confluent/type/decimal.proto": {"Decimal": "bytes value, uint32 precision, int32 scale"},
    "google/type/color.proto": {"Color": "float red, float green, float blue, google.protobuf.FloatValue alpha"},
    "google/type/date.proto": {"Date": _DATE},
    "google/type/datetime.proto": {
        "DateTime": f"{_DATE}, {_TIME}, google.protobuf.Duration utc_offset time_offset, "
        "google.type.TimeZone time_zone time_offset",
        "TimeZone": "string id, string version",
    },
    "google/type/decimal.proto": {"Decimal": "string value"},
    "google/type/expr.proto": {"Expr": "string expression, string title, string description, string location"},
    "google/type/fraction.proto": {"Fraction": "int64 numerator, int64 denominator"},
    "google/type/interval.proto": {
        "Interval": "google.protobuf.Timestamp start_time, google.protobuf.Timestamp end_time"
    },
    "google/type/latlng.proto": {"LatLng": "double latitude, double longitude"},
    "google/type/money.proto": {"Money": "string currency_code, int64 units, int32 nanos"},
    "google/type/phone_number.proto": {
        "PhoneNumber": "string e164_number kind, google.type.PhoneNumber.ShortCode short_code kind, string extension",
        "PhoneNumber.ShortCode": "string region_code, string number",
    },
    "google/type/postal_address.proto": {
        "PostalAddress": "int32 revision, string region_code, string language_code, string postal_code, "
        "string sorting_code, string administrative_area, string locality, string sublocality, "
        "string[] address_lines, string[] recipients, string organization"
    },
    "google/type/quaternion.proto": {"Quaternion": "double x, double y, double z, double w"},
    "google/type/timeofday.proto": {"TimeOfDay": _TIME},
}
"""A field is its type, its name, and the `oneof` that contains it."""
_ENUMS: Final = {
    "google/type/calendar_period.proto": (
        "CalendarPeriod",
        "CALENDAR_PERIOD_UNSPECIFIED DAY WEEK FORTNIGHT MONTH QUARTER HALF YEAR",
    ),
    "google/type/dayofweek.proto": (
        "DayOfWeek",
        "DAY_OF_WEEK_UNSPECIFIED MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY SUNDAY",
    ),
    "google/type/month.proto": (
        "Month",
        "MONTH_UNSPECIFIED JANUARY FEBRUARY MARCH APRIL MAY JUNE JULY AUGUST SEPTEMBER OCTOBER NOVEMBER DECEMBER",
    ),
}
_IMPORTS: Final = {
    "google/type/color.proto": "google/protobuf/wrappers.proto",
    "google/type/datetime.proto": "google/protobuf/duration.proto",
    "google/type/interval.proto": "google/protobuf/timestamp.proto",
}
BUILT_IN: Final = frozenset({*_MESSAGES, *_ENUMS})


@cache
def built_in_file(name: str) -> Any:
    """Returns the FileDescriptorProto of one of BUILT_IN, which must not be modified."""
    from google.protobuf import descriptor_pb2

    package = str(PurePosixPath(name).parent).replace("/", ".")
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")
    if name in _IMPORTS:
        file.dependency.append(_IMPORTS[name])
    messages: dict[str, Any] = {}
    for full, fields in _MESSAGES.get(name, {}).items():
        outer, _, inner = full.rpartition(".")
        messages[full] = (messages[outer].nested_type if outer else file.message_type).add(name=inner)
        for number, field in enumerate(fields.split(", "), 1):
            _add_field(messages[full], number, *field.split())
    if name in _ENUMS:
        word, values = _ENUMS[name]
        enum = file.enum_type.add(name=word)
        for number, value in enumerate(values.split()):
            enum.value.add(name=value, number=number)
    return file


def _add_field(message: Any, number: int, kind: str, name: str, choice: str = "") -> None:
    single = kind.removesuffix("[]")
    field = message.field.add(name=name, number=number)
    field.label = field.LABEL_OPTIONAL if single == kind else field.LABEL_REPEATED
    if "." in kind:
        field.type, field.type_name = field.TYPE_MESSAGE, f".{kind}"
    else:
        field.type = field.Type.Value(f"TYPE_{single.upper()}")
    if choice:
        if choice not in [one.name for one in message.oneof_decl]:
            message.oneof_decl.add(name=choice)
        field.oneof_index = len(message.oneof_decl) - 1
