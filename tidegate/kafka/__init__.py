"""Kafka's clients and the requests of our own: connections, TLS, facts, transactions, producers."""
