"""Says why a pipeline is slow, late or failing: one sentence that names the cause, and its remedy (ADR 91)."""
