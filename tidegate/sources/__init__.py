"""Reading Kafka: partitions, positions, bounded reads."""
