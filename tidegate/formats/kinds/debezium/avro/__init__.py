"""Change events in Avro, with schemas of a registry.

`schemas.py` handles an envelope's schema and Connect's names in it, `values.py` the meaning of values. `decoder.py`
makes the columns of the table, with the decoder of `avro`.
"""
