"""Linear and quadratic discriminants."""
