"""Attacks on classifiers: signals in, membership scores out; one file each, one line each in ``ALL``.

How to add one:

1. Write ``privgate/membership/attacks/<name>.py`` with a subclass of ``Attack``; ``label_gap.py`` is the shortest.
2. Give it ``name``, ``title``, ``source`` and ``threat_model``: the report prints them.
3. Set ``min_shadows`` to the shadow models that each side of a record needs, and ``cut`` where the paper fixes one.
4. ``fit(signals, rng)`` learns from the shadow models and returns what scores any target, higher for members.
5. Raise ``MeasurementError`` with one sentence where the signals do not suffice; never return NaN.
6. Say in the docstring what the paper does that the file leaves out.
7. Add the instance to ``ALL`` below, the strongest first, and its name to ``NAMES`` in ``privgate/membership``.
8. ``tests/membership/attacks/test_every_attack.py`` then tries planted leaks and blind models, without a line of yours.
"""

from privgate.membership.attacks.attack_base import Attack, Signals
from privgate.membership.attacks.label_gap import LabelGap
from privgate.membership.attacks.lira import LiraOffline, LiraOnline
from privgate.membership.attacks.long_distance import LongDistance
from privgate.membership.attacks.long_frequency import LongFrequency
from privgate.membership.attacks.long_untargeted import LongUntargeted
from privgate.membership.attacks.neighbours import LiraBeside, LiraNeighbours
from privgate.membership.attacks.quantile import Quantile
from privgate.membership.attacks.rmia import Rmia, RmiaOffline
from privgate.membership.attacks.shokri import Shokri
from privgate.membership.attacks.yeom_loss import YeomLoss
from privgate.membership.attacks.yeom_threshold import YeomThreshold, YeomThresholdKnown

#: every attack on classifiers, strongest first
ALL: tuple[Attack, ...] = (
    LiraOnline(), LiraNeighbours(), LiraBeside(), Rmia(), LiraOffline(), RmiaOffline(), LongDistance(),
    LongFrequency(), LongUntargeted(), Shokri(), Quantile(), YeomThresholdKnown(), YeomThreshold(), YeomLoss(),
    LabelGap(),
)  # fmt: skip

BY_NAME: dict[str, Attack] = {a.name: a for a in ALL}

__all__ = ["ALL", "BY_NAME", "Attack", "Signals"]
