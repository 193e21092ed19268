"""One module per kind of operator. To add one: docs/extending.md."""
