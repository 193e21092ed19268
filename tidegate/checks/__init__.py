"""A survey of a deployment, judged into findings that `run`, `validate --connect` and `doctor` share."""
