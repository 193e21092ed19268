"""The pipeline of the end-to-end tests: reads orders and writes a stateless and a keyed output, which demo/verify.py
can check.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tests.support.changed_orders import released

SCHEMA = {
    "id": "bigint",
    "customer": "string",
    "sku": "string",
    "quantity": "int",
    "price_cents": "bigint",
    "status": "string",
}
HALVES = ("even", "odd")
"""Topics for the orders with even and with odd ids."""


class OrdersPipeline(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that differ between tests; `msgspec.structs.replace` creates variants. Topics are `prefix` + their
    name.
    """

    name: str
    bootstrap: str
    directory: Path
    """The checkpoint directory."""
    address: str = ""
    """Replaces `directory` by an address in an object store, opened with the settings in `storage`."""
    storage: dict[str, str] = {}
    prefix: str = ""
    master: str = "local[2]"
    parallelism: int = 2
    max_concurrent: int = 1
    unaligned: str = "never"
    totals_kafka: dict[str, str] = {}
    """Producer properties of the sink after the exchange."""
    interval: str = "1s"
    """A checkpoint of two slots costs a total of 0.1 s of CPU time, most of it at the broker."""
    mode: str = "exactly-once"
    start: str = "earliest"
    until: str = "never"
    checkpoint_timeout: str = "60s"
    transaction_timeout: str = "10m"
    heartbeat_timeout: str = "10s"
    shutdown_grace: str = "30s"
    restart_max: str = "2s"
    kafka: dict[str, str] = {}
    """Additional Kafka properties, such as those of the login."""
    keyed: bool = True
    """Includes the running totals; without them the pipeline has no exchange and no state."""
    halves: bool = False
    """Additionally writes the paid orders to two topics by their ids."""
    spark: dict[str, str] = {}
    backend: str = "memory"
    savepoint_roots: tuple[str, ...] = ()
    release: int = 0
    """Release of a file that a user changes between two runs,
    see tests/support/changed_orders.py; 0: an unchanged one.
    """

    def write(self, path: Path) -> Path:
        """Writes the file (JSON is YAML) and returns its path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self._document()), indent=2))
        return path

    def _document(self) -> dict[str, Any]:
        document = self._plain_document()
        return document if self.release == 0 else released(document, self.release)

    def _plain_document(self) -> dict[str, Any]:
        heartbeat_ms = 1000 if self.heartbeat_timeout == "10s" else 200
        steps: list[dict[str, Any]] = [
            {"name": "paid", "from": "orders", "where": "status = 'paid'"},
            {
                "name": "priced",
                "from": "paid",
                "select": {"id": "id", "customer": "customer", "total_cents": "quantity * price_cents"},
            },
        ]
        sinks: dict[str, dict[str, Any]] = {
            "paid_orders": {"from": "priced", "topic": self.prefix + "paid", "format": "json", "key": "customer"}
        }
        sinks |= self._halves(sinks["paid_orders"])
        if self.keyed:
            totals = {"orders": "count(*)", "revenue_cents": "sum(quantity * price_cents)", "last_id": "last(id)"}
            steps.append({"name": "totals", "from": "orders", "key": "sku", "aggregate": totals})
            sinks["sku_totals"] = {
                "from": "totals",
                "topic": self.prefix + "totals",
                "format": "json",
                "key": "sku",
                "kafka": self.totals_kafka,
            }
        return {
            "version": 1,
            "name": self.name,
            "kafka": {"bootstrap.servers": self.bootstrap, **self.kafka},
            "spark": {"master": self.master, **self.spark},
            "parallelism": self.parallelism,
            "checkpoints": self._checkpoints(),
            "savepoints": {"roots": list(self.savepoint_roots)},
            "state": {"backend": self.backend},
            "restart": {"initial": "100ms", "max": self.restart_max, "give_up_after": "1000 in 1h"},
            "runtime": {
                "heartbeat_interval": f"{heartbeat_ms}ms",
                "heartbeat_timeout": self.heartbeat_timeout,
                "shutdown_grace": self.shutdown_grace,
            },
            "http": {"port": 0},
            "sources": {
                "orders": {
                    "topic": self.prefix + "orders",
                    "format": "json",
                    "schema": SCHEMA,
                    "start": self.start,
                    "until": self.until,
                }
            },
            "steps": steps,
            "sinks": sinks,
        }

    def _checkpoints(self) -> dict[str, Any]:
        return {
            "directory": self.address or f"file://{self.directory}",
            "storage": self.storage,
            "interval": self.interval,
            "max_concurrent": self.max_concurrent,
            "unaligned": self.unaligned,
            "timeout": self.checkpoint_timeout,
            "mode": self.mode,
            "transaction_timeout": self.transaction_timeout,
        }

    def _halves(self, paid: dict[str, Any]) -> dict[str, Any]:
        """Returns a sink like that of the paid orders, but with two topics."""
        even, odd = (self.prefix + name for name in HALVES)
        topic = {"expression": f"if(id % 2 = 0, '{even}', '{odd}')", "allow": [even, odd]}
        return {"halves": {**paid, "topic": topic}} if self.halves else {}
