"""Advice: the weakest change to a refused model that passes, found by measuring changes with the gate's own rules."""
