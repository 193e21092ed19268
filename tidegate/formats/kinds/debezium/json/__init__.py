"""Change events in JSON, with or without Connect's schema in each record.

`events.py` parses events, `schemas.py` reads Connect's schema, and `values.py` converts the values that Debezium writes
differently from what JSON sources read. `decoder.py` combines them.
"""
