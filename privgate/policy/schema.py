"""The JSON Schema of policy files, from which an editor completes and checks them while they are written."""

import json
from typing import Any

from privgate.policy import rules
from privgate.policy.document import Document

IDENTIFIER = "urn:privgate:schema:policy-v1"


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a policy file.

    The loader checks more: extends may only tighten, ids, dates and names must fit together. A file that extends
    another needs to name only what it changes, so there a rule's other keys are optional.
    """
    made = Document.model_json_schema(by_alias=True)
    definitions = made["$defs"]
    demanded = {}
    for metric, rule in rules.ALL.items():
        definition = definitions[rule.__name__]
        demanded[metric] = definition.pop("required", [])
        definition["required"] = ["metric"]
        definition["description"] = _first_sentence(rule)
    suite = definitions["Data"]["properties"]["suite"]
    suite["anyOf"] = [{"type": "string", "minLength": 1}, {"type": "array", "items": suite.pop("items")}]
    del suite["type"]
    made["required"] = [name for name in made["required"] if name != "rules"]
    made["if"] = {"not": {"required": ["extends"]}}
    made["then"] = {"required": ["rules"], "properties": {"rules": {"items": {"allOf": _complete(demanded)}}}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": IDENTIFIER,
        **made,
        "title": "privgate policy",
    }


def text() -> str:
    """Return the schema as the file that is shipped."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _complete(demanded: dict[str, list[str]]) -> list[dict[str, Any]]:
    """Return, for every metric, which keys a rule that stands alone needs."""
    return [
        {"if": {"properties": {"metric": {"const": metric}}, "required": ["metric"]}, "then": {"required": names}}
        for metric, names in demanded.items()
        if names
    ]


def _first_sentence(rule: type[rules.Rule]) -> str:
    return " ".join((rule.__doc__ or "").split("\n\n", maxsplit=1)[0].split())
