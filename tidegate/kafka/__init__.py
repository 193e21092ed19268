"""Kafka clients and our own protocol requests: connections, TLS, broker facts, transactions and producers."""
