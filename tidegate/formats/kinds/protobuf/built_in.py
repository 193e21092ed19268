"""Files that registries have in addition to Google's own: schemas import them, but they are in no subject.

The library does not contain them. They are short, so they are listed here, as proto3. The fields of a message have the
numbers 1, 2, 3 ... in this order, the values of an enum 0, 1, 2 ...
"""

from __future__ import annotations

from functools import cache
from pathlib import PurePosixPath
from typing import Any, Final

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
