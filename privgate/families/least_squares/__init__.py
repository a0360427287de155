"""Regressions whose answers are linear in the targets: exact without each record, by the hat matrix."""
