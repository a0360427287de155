"""Logistic regression: objective, engine and theorem."""
