"""The runtimes of `lookup`: without waiting rows, and with them."""
