"""The first question: what would the answers be without one person."""
