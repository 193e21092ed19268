"""What runs between sources and sinks: the contract of an operator, and a module for each kind."""
