"""The route of one run: gate, plan, remedies."""
