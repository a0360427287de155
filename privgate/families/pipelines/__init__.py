"""Pipelines: first steps that do not depend on the data are seen through; functions that only fit are recognised."""
