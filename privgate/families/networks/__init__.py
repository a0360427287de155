"""Networks that a recipe declares, trained in batches."""
