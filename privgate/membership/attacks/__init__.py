"""Attacks on classifiers: signals in, membership scores out; one file a paper, one line each in ``ATTACKS``.

``fit`` learns from the shadow models and returns what scores any target, higher for members, never NaN. ``min_shadows``
is what each side of a record needs, ``cut`` what the paper fixes. How to add one: ``.github/CONTRIBUTING.md``.
"""

from pkgutil import resolve_name

from privgate.membership import ATTACKS
from privgate.membership.attacks.attack_base import Attack, Signals

#: every attack on classifiers, strongest first
ALL: tuple[Attack, ...] = tuple(resolve_name(f"{__name__}.{place}")() for place in ATTACKS.values())
BY_NAME: dict[str, Attack] = {a.name: a for a in ALL}

__all__ = ["ALL", "BY_NAME", "Attack", "Signals"]
