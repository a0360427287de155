"""Subjects with a known true answer, against which the product's verdicts are counted."""
