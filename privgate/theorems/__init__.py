"""What a kind of model proves about everybody."""
