"""Trainings whose epsilon was frozen before dp-accounting did the accounting: the table that two tests read."""

#: (noise multiplier, sampling rate, steps, sampling, neighbours, records of the training set, records a person, delta)
_STANDARD = [(1.0, 0.01, 1000), (1.1, 256 / 60000, 15_000), (0.7, 0.02, 500), (2.0, 0.05, 2000), (4.0, 0.1, 300)]
_KERNEL = [
    (2.0, 0.2, 50),
    (0.3, 0.3, 20),
    (0.5, 0.01, 100),
    (0.8, 0.05, 300),
    (1.0, 0.01, 1000),
    (1.1, 256 / 60_000, 15_000),
    (6.0, 0.9, 10),
    (40.0, 0.001, 100_000),
]

SETTINGS = [
    *((*s, "poisson", "add_remove", 0, 1, 1e-5) for s in _STANDARD),
    *((*s, "poisson", a, 0, 1, d) for s in _KERNEL for a in ("add_remove", "replace_one") for d in (1e-3, 1e-5, 1e-8)),
    (5.0, 1.0, 25, "poisson", "add_remove", 0, 1, 1e-5),
    *((6.0, 0.1, 50, s, a, 0, 1, 1e-5) for s in ("poisson", "shuffled", "unknown") for a in ("add_remove", "replace_one")),
    (1.0, 0.01, 1000, "shuffled", "add_remove", 0, 1, 1e-5),
    (50.0, 0.01, 1000, "unknown", "add_remove", 0, 1, 1e-5),
    (5.0, 0.01, 25, "unknown", "add_remove", 0, 1, 1e-5),
    (5.0, 0.04, 25, "shuffled", "add_remove", 0, 1, 1e-5),
    (1.0, 0.01, 1000, "fixed_size", "replace_one", 5000, 1, 1e-5),
    (8.0, 0.999, 10, "fixed_size", "replace_one", 1000, 1, 1e-5),
    (8.0, 1.0, 10, "fixed_size", "replace_one", 1000, 1, 1e-5),
    (1.5, 0.01, 500, "fixed_size", "replace_one", 10_000, 1, 1e-5),
    *((1.5, 0.3, 1, "poisson", "add_remove", 0, k, 1e-2) for k in (1, 3)),
    *((60.0, 0.05, 100, s, "add_remove", 0, k, 1e-8) for s in ("poisson", "shuffled", "unknown") for k in (1, 3)),
    *((3.0, 0.2, 1, "poisson", "add_remove", 0, k, 1e-3) for k in (1, 2, 5)),
    (1.0, 0.05, 200, "poisson", "add_remove", 0, 1, 1e-6),
    (1.2, 0.2, 16, "poisson", "add_remove", 0, 1, 1e-5),
    (1.5, 0.05, 40, "poisson", "add_remove", 0, 1, 1e-5),
    (1.2, 0.08, 60, "poisson", "add_remove", 0, 2, 1e-5),
]
