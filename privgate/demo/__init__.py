"""The demonstration: five models on real data, a real registry, five decisions."""
