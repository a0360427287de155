"""What is to be retrained, running it on a fleet, and remembering it."""
