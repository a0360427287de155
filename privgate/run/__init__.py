"""One run: what its measurements share, shadow models, controls, data checks."""
