"""A Kafka broker as a pure state machine, and clients of it with the interfaces that the product uses.

`broker.py` answers requests; time is an argument and nothing is random. `log.py` is one partition, and `coordinator.py`
the transaction coordinator. `answers.py` answers kafka-python's request objects; `producer.py` and `consumer.py` model
librdkafka's clients. Every request passes the process's port (`simulation/port.py`), which adds latency and faults.
tests/simulation/broker compares the model with a real broker.
"""
