"""What runs of a step with windows: imported only where rows are processed."""
