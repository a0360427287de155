"""Attacks: signals in, membership scores out; one file each, one line each in ``ALL``."""

from privgate.attacks.base import Attack, Signals
from privgate.attacks.label_gap import LabelGap
from privgate.attacks.lira_offline import LiraOffline
from privgate.attacks.lira_online import LiraOnline
from privgate.attacks.long_distance import LongDistance
from privgate.attacks.long_frequency import LongFrequency
from privgate.attacks.long_untargeted import LongUntargeted
from privgate.attacks.quantile import Quantile
from privgate.attacks.rmia import Rmia
from privgate.attacks.rmia_offline import RmiaOffline
from privgate.attacks.shokri import Shokri
from privgate.attacks.yeom_loss import YeomLoss
from privgate.attacks.yeom_threshold import YeomThreshold
from privgate.attacks.yeom_threshold_known import YeomThresholdKnown

#: every attack, strongest first
ALL: tuple[Attack, ...] = (
    LiraOnline(),
    Rmia(),
    LiraOffline(),
    RmiaOffline(),
    LongDistance(),
    LongFrequency(),
    LongUntargeted(),
    Shokri(),
    Quantile(),
    YeomThresholdKnown(),
    YeomThreshold(),
    YeomLoss(),
    LabelGap(),
)

BY_NAME: dict[str, Attack] = {a.name: a for a in ALL}

__all__ = ["ALL", "BY_NAME", "Attack", "Signals"]
