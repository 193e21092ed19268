"""Steps to operators to subtasks: expressions, the physical plan, key groups."""
