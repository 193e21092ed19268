"""A limit of requests for each client: a bucket of tokens that fills as event time passes."""

from tidegate.python import Out, Row, Settings, Step, Value


class RateLimit(Step):
    """Emits up to `burst` requests of a client at once, and `per_second` on average."""

    tokens = Value("double", ttl="1h")  # an hour of silence fills the bucket of any client
    filled_at = Value("timestamp", ttl="1h")

    def open(self, settings: Settings) -> None:
        self.burst, self.per_second = settings["burst"], settings["per_second"]

    def process(self, row: Row, out: Out) -> None:
        tokens, filled_at = self.tokens.get(), self.filled_at.get()
        if tokens is None or filled_at is None:
            tokens, filled_at = self.burst, row.time
        now = max(row.time, filled_at)  # an older request fills nothing
        tokens = min(self.burst, tokens + (now - filled_at).total_seconds() * self.per_second)
        allowed = tokens >= 1
        self.tokens.set(tokens - allowed)
        self.filled_at.set(now)
        if allowed:
            out.emit(row)
        else:
            out.to("refused", row)
