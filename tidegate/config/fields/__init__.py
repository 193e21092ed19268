"""What the words of a pipeline file may be: types of fields, units, names, secrets."""
