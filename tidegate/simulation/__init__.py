"""All of Tidegate under a virtual clock, network, storage and broker, with planned faults."""
