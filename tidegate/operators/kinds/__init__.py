"""One module per kind of operator. To add one: docs/add-a-step.md."""
