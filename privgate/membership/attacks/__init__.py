"""Attacks on classifiers: signals in, membership scores out; one file a paper, one line each in ``ATTACKS``.

How to add one: write ``<paper>.py`` here with a subclass of ``Attack`` (``LabelGap`` in ``yeom.py`` is short). ``fit``
learns from the shadow models and returns what scores any target, higher for members, or raises ``MeasurementError``
with one sentence; never return NaN. ``name``, ``title``, ``source`` and ``threat_model`` are printed; ``min_shadows``
is what each side of a record needs, ``cut`` what the paper fixes. The docstring says what the file leaves out. Add its
name and place to ``ATTACKS`` in ``privgate/membership/__init__.py``, the strongest first. Planted leaks and blind
models are then tried by ``tests/membership/attacks/test_every_attack.py``, without a line of yours.
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
