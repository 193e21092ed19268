"""One module or package for each format, with a `FORMAT`; imported by the daemon, so none loads Polars at its top."""
