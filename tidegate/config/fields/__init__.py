"""Types of values in a pipeline file: fields, units, names, secrets."""
