"""Spark as the host of the slots, and the Java that it runs on."""
