"""Change events in Avro, with schemas of a registry.

`schemas.py` handles an envelope's schema and Connect's names in it, `values.py` the meaning of values, and `rows.py`
the columns of a table. `decoder.py` combines them with the decoder of `avro`.
"""
