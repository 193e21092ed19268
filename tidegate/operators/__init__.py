"""The operator contract, the kinds of steps, and the operators that the planner adds between sources and sinks."""
