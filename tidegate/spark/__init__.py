"""Spark as the host of the slots, and the Java below it."""
