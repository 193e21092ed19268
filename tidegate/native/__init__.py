"""What is done in C: reading records from librdkafka without an object for each, and decoding JSON (ADR 67).

One shared object without Python's or librdkafka's headers serves every release of both. Where it is missing, or a
client is one that it was not tried with, everything is done in Python: the same results, at more CPU time.
"""
