"""Declared fields of every type that C decodes, at the top and at any depth."""

from __future__ import annotations

from typing import Final

from tidegate.datatypes import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    DataType,
    decimal_of,
    map_of,
)


def array_of(kind: DataType) -> DataType:
    return DataType("array", element=kind)


def struct_of(**fields: DataType) -> DataType:
    return DataType("struct", fields=tuple(fields.items()))


MONEY: Final = decimal_of(10, 2)
FLAT: Final = (
    ("i", BIGINT),
    ("s", STRING),
    ("d", DOUBLE),
    ("money", MONEY),
    ("at", TIMESTAMP),
    ("local", TIMESTAMP_NTZ),
    ("bytes", BINARY),
    ("day", DATE),
    ("f", FLOAT),
    ("flag", BOOLEAN),
    ("i8", TINYINT),
    ("i16", SMALLINT),
    ("i32", INT),
    ("d38", decimal_of(38, 10)),
    ("part", decimal_of(3, 3)),
    ("whole", decimal_of(38, 0)),
)
NESTED: Final = (
    ("longs", array_of(BIGINT)),
    ("texts", array_of(STRING)),
    ("one", struct_of(a=INT, s=STRING, at=TIMESTAMP, l=array_of(struct_of(x=DOUBLE, y=array_of(BOOLEAN))))),
    ("many", array_of(struct_of(a=decimal_of(5, 1), b=struct_of(c=BINARY, d=DATE)))),
    ("deep", array_of(array_of(array_of(FLOAT)))),
    ("map", map_of(STRING, DOUBLE)),
    ("maps", array_of(map_of(STRING, struct_of(a=STRING, m=map_of(STRING, STRING))))),
    ("i", BIGINT),
)
