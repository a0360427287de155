"""Attacks on classifiers: signals in, membership scores out; one file a paper, one line each in ``ATTACKS``.

How to add one:

1. Write ``privgate/membership/attacks/<paper>.py`` with a subclass of ``Attack``; ``LabelGap`` in ``yeom.py`` is short.
2. Give it ``name``, ``title``, ``source`` and ``threat_model``: the report prints them.
3. Set ``min_shadows`` to the shadow models that each side of a record needs, and ``cut`` where the paper fixes one.
4. ``fit(signals, rng)`` learns from the shadow models and returns what scores any target, higher for members.
5. Raise ``MeasurementError`` with one sentence where the signals do not suffice; never return NaN.
6. Say in the docstring what the paper does that the file leaves out.
7. Add its name and place to ``ATTACKS`` in ``privgate/membership/__init__.py``, the strongest first.
8. ``tests/membership/attacks/test_every_attack.py`` then tries planted leaks and blind models, without a line of yours.
"""

from importlib import import_module

from privgate.membership import ATTACKS
from privgate.membership.attacks.attack_base import Attack, Signals


def _make(place: str) -> Attack:
    module, _, kind = place.partition(":")
    attack: Attack = getattr(import_module(f"{__name__}.{module}"), kind)()
    return attack


#: every attack on classifiers, strongest first
ALL: tuple[Attack, ...] = tuple(map(_make, ATTACKS.values()))
BY_NAME: dict[str, Attack] = {a.name: a for a in ALL}

__all__ = ["ALL", "BY_NAME", "Attack", "Signals"]
