"""What must hold before a number about a model counts: its recipe, its data, its seed and what MLflow serves."""
