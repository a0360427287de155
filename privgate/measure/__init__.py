"""Request to measurement: one file a metric, one line each in the catalogue."""
