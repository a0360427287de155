"""Differential privacy: what a claim bounds, whether it is true, and how many may ask to be deleted."""
