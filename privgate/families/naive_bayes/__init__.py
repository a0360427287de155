"""Naive Bayes of five kinds and contingency tables: counts, engines and theorems."""
