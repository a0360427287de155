"""Models of which is known, by how they are built, whether they leak: what `make truth` runs."""
