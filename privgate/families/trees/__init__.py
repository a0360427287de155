"""Trees: the engine of library trees, and the theorem of random ones."""
