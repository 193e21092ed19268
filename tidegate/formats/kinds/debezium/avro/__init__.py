"""Change events in Avro, with schemas of a registry.

`schemas.py` is about an envelope's schema and Connect's names in it, `values.py` about what values mean, `rows.py`
about the columns of a table, and `decoder.py` puts them together, around the decoder of `avro`.
"""
