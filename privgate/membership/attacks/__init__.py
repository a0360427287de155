"""Attacks: signals in, membership scores out; one file each, one line each in ``ALL``."""

from privgate.membership.attacks.attack_base import Attack, Signals
from privgate.membership.attacks.label_gap import LabelGap
from privgate.membership.attacks.lira_beside import LiraBeside
from privgate.membership.attacks.lira_neighbours import LiraNeighbours
from privgate.membership.attacks.lira_offline import LiraOffline
from privgate.membership.attacks.lira_online import LiraOnline
from privgate.membership.attacks.long_distance import LongDistance
from privgate.membership.attacks.long_frequency import LongFrequency
from privgate.membership.attacks.long_untargeted import LongUntargeted
from privgate.membership.attacks.quantile import Quantile
from privgate.membership.attacks.rmia import Rmia
from privgate.membership.attacks.rmia_offline import RmiaOffline
from privgate.membership.attacks.shokri import Shokri
from privgate.membership.attacks.yeom_loss import YeomLoss
from privgate.membership.attacks.yeom_threshold import YeomThreshold
from privgate.membership.attacks.yeom_threshold_known import YeomThresholdKnown

#: every attack, strongest first
ALL: tuple[Attack, ...] = (
    LiraOnline(),
    LiraNeighbours(),
    LiraBeside(),
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
