"""Forgetting people: what has to be trained again, the proof that nothing else changed, and who was told before."""
