"""Policies: a file of rules, read strictly, resolved to what it extends, and judged without doing anything else."""

from privgate.policy.judging import Judged
from privgate.policy.problems import PolicyFileError, Problem
from privgate.policy.resolved_policy import Policy

__all__ = ["Judged", "Policy", "PolicyFileError", "Problem"]
