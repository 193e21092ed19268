"""Writing to Kafka: transactions prepared in the slot and ended by the driver."""
