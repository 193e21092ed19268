"""One survey of a deployment, judged into findings: `run`, `validate --connect` and `doctor` read the same ones."""
