"""What every theorem over all queries is made of: frontiers, bounds, search, rounding."""
