"""The daemon's HTTP port."""
