"""Reading from Kafka: partitions, positions, bounded reads."""
