"""What advice finds for seven models, and what it costs: ``python -m advice``."""
