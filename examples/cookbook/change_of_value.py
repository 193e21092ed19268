"""Events that differ from the one before them of their key."""

from tidegate.python import Out, Row, Step, Value


class Changes(Step):
    """Keeps the last state of each device, and emits a row when it changes."""

    last = Value("string")

    def process(self, row: Row, out: Out) -> None:
        before = self.last.get()
        if row["state"] != before:
            self.last.set(row["state"])
            out.emit(device=row["device"], before=before, state=row["state"], at=row["at"])
