"""Pipelines: first steps that do not depend on the data are seen through."""
