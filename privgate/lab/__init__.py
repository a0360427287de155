"""What no shipped policy asks: training code that colludes, robust adversaries, sensitive features.

Each question registers itself: its rule by an entry point of the group ``privgate.rules``, its measurement by one of
``privgate.questions``. Nothing outside of this room imports it.
"""

import privgate.policy  # noqa: F401  it loads the rules of this room, whichever of the two is imported first
