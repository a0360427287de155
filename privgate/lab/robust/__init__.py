"""Membership by robustness: how far a record is from the nearest place where the model is wrong about it."""
