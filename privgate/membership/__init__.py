"""The second question: can an attacker tell who was in the training data."""
