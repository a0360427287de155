"""Advice: the cheapest change to a blocked model that passes, found by measuring candidates with the gate's own means.

The one place that searches. What it proposes is measured twice: while searching, with randomness of its own, and once
more by a whole check whose randomness the search has never seen.
"""
