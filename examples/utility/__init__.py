"""What a guarantee costs: learners that earn one next to those that do not; `make utility` makes its table from it."""
