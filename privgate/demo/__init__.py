"""The demonstration: three models on real data, a real registry, three decisions."""
