"""``python -m privgate``: map every ending to an exit code."""
