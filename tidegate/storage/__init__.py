"""Checkpoint storage: durable objects with put-if-absent."""
