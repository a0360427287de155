"""Policies: a file of rules, read strictly, resolved to what it extends, and judged without doing anything else."""

from privgate.policy.judge import Judged
from privgate.policy.policy import Policy
from privgate.policy.problems import PolicyFileError, Problem

__all__ = ["Judged", "Policy", "PolicyFileError", "Problem"]
