"""Arrays in, numbers with intervals out; pure."""
