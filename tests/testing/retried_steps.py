"""Steps in Python of which one raises for records that the other one takes."""

from __future__ import annotations

from tidegate.python import Out, Row, Step, Value


class Lenient(Step):
    """Emits the orders of a customer, and counts them."""

    seen = Value("bigint", default=0)

    def process(self, row: Row, out: Out) -> None:
        self.seen.set(self.seen.get() + 1)
        out.emit(customer=row["customer"], id=row["id"])


class Strict(Lenient):
    """Raises for orders without number, after the state was changed."""

    def process(self, row: Row, out: Out) -> None:
        super().process(row, out)
        if not row["n"]:
            raise ValueError("it has no number")
