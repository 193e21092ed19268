"""Operators that the planner itself puts into a graph: its ends, unions, projections, and what stands before a sink."""
