"""One complete rule of each metric: the example that its page ends with."""

import importlib
import inspect
import textwrap

from ruamel.yaml import YAML

from privgate.policy.rules import ALL


def page(kind):
    own = inspect.getdoc(kind)
    return own if "- metric:" in own else importlib.import_module(kind.__module__).__doc__


def shown(kind):
    """Return the rule that a page ends with, as keyword arguments; what it leaves to the model is given here."""
    text = page(kind)
    ((options),) = YAML(typ="safe").load(textwrap.dedent(text[text.index("    - metric:") :]))
    if options.get("max") == "claim":
        options |= {"max": 4.0, "delta": 1e-5}
    return options


#: one complete rule of each metric, as keyword arguments
EXAMPLES = {metric: shown(kind) for metric, kind in ALL.items()}


def example(metric, **changes):
    return ALL[metric].model_validate({**EXAMPLES[metric], **changes})
