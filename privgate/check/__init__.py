"""The route of one run: gate and plan."""
