"""Brokers of other Kafka releases than the pinned one: their jars from pinned lists, and their own log binding."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.compatibility.cells import Cell
from tidegate.dev.broker import DevelopmentBroker
from tidegate.dev.broker.artifacts import KAFKA_VERSION, fetch_jars

LISTS: Final = Path(__file__).parent / "kafka"
"""As `artifacts.txt` next to the development broker; `tests/compatibility/kafka/list.sh` makes them."""
LOG4J1: Final = """log4j.rootLogger=WARN, f
log4j.appender.f=org.apache.log4j.FileAppender
log4j.appender.f.File=${tidegate.broker.log}
log4j.appender.f.layout=org.apache.log4j.PatternLayout
log4j.appender.f.layout.ConversionPattern=[%d] %p %m (%c{1})%n
"""
"""Kafka 3 logs by another library."""


def make_broker(cell: Cell, place: Path) -> DevelopmentBroker:
    """The broker of a cell, not started. Raises ArtifactsUnavailable."""
    version, feature = cell.kafka_version, cell.transaction_version
    if version == KAFKA_VERSION:
        return DevelopmentBroker(place, transaction_version=feature)
    place.mkdir(parents=True, exist_ok=True)
    options = []
    if version.startswith("3."):
        logs = place / "log4j.properties"
        logs.write_text(LOG4J1, encoding="utf-8")
        options = [f"-Dlog4j.configuration=file:{logs}"]
    jars = fetch_jars(version, LISTS / f"{version}.txt")
    return DevelopmentBroker(place, transaction_version=feature, jars=jars, jvm_options=options)
