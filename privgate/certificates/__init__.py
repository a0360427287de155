"""Certificates: theorems whose hypotheses were checked, one file each."""

from privgate.certificates.base import Certificate, Certified
from privgate.certificates.bernoulli_nb import BernoulliNB
from privgate.certificates.best import applicable, bound
from privgate.certificates.categorical_nb import CategoricalNB

ALL: dict[str, Certificate] = {c.name: c for c in (CategoricalNB(), BernoulliNB())}

__all__ = ["ALL", "Certificate", "Certified", "applicable", "bound"]
