"""A Kafka broker as a pure state machine, and clients of it with the interfaces that the product uses.

`broker.py` answers requests; time is an argument, nothing is random. `log.py` is one partition, `coordinator.py` the
transaction coordinator. `client.py`, `writer.py` and `reader.py` stand for the real clients; every request of theirs
goes through a `Link` (`link.py`), which adds latency and faults. tests/simulation/broker compares it with the real one.
"""
