"""Nearest neighbours and centroids, and the theorem of smoothed neighbours."""
