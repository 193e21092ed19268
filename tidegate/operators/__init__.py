"""Filter, select, aggregate, union and the compiled expressions they use."""
