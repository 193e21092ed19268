"""Operators that the planner adds: sources and sinks, unions, projections, and operators in front of a sink."""
