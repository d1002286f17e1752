"""Points and constraints: what there is to learn from. Knows nothing of learning."""
