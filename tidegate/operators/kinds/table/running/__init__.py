"""The runtimes of `table`: its rows, and their changes."""
