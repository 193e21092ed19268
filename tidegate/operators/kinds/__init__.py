"""One module per kind of operator. To add one, see docs/add-a-step.md."""
