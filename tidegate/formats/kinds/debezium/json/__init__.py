"""Change events in JSON, with Connect's schema in each record or without.

`events.py` takes events apart, `schemas.py` reads Connect's schema, `values.py` has the values that Debezium writes
otherwise than JSON sources here read them, and `decoder.py` puts them together.
"""
