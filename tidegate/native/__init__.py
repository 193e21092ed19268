"""Code in C: reads records from librdkafka without an object per record, and decodes JSON (ADR 67).

A single shared object, built without Python's or librdkafka's headers, works with every release of both. If it is
missing, or with a client release that it was not tested with, everything is done in Python: the same results at more
CPU time.
"""
