"""Every common kind of model, as its owner would write it, through the gate: what `make kinds` makes its table from."""
