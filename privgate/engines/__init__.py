"""Proposers: they search for certificates and rank people; nothing that they say limits anybody."""
