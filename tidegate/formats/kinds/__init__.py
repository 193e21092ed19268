"""One module or package for each format, with a `FORMAT`. The daemon imports them, so none loads Polars at the top."""
