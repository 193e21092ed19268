"""One module for each kind of storage, with a `STORE`; see docs/extending.md."""
