"""The one maker of upper limits: a case comes in, an interval for each person goes out, or a refusal.

Everything else in the package proposes. An engine, a search or a solver may be wrong: then a limit is wider than it
need be, or is refused. It is never below the truth. numpy is all that is imported here.
"""

from privgate.kernel.assertion import Case, Limits, Refused
from privgate.kernel.judge import FAMILIES, limits
from privgate.kernel.logistic import everybody, near

__all__ = ["FAMILIES", "Case", "Limits", "Refused", "everybody", "limits", "near"]
