"""A command whose module lacks something, whatever is installed."""

import no_such_module  # type: ignore[import-not-found]  # that is its point

simulate = no_such_module.simulate
