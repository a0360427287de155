"""The shape of a policy file: pydantic's errors, translated into line, key, what was expected and the nearest name."""

import json
from typing import Any, TypeVar

from pydantic import ValidationError

from privgate.policy import rules
from privgate.policy.document import DIGEST, NAME, Document
from privgate.policy.problems import PolicyFileError, Problem, nearest
from privgate.policy.strict_yaml import Place, Tree, dotted

_OBSERVE = "observing is the operator's setting, `privgate check --observe`"
_WORDS = {
    "too_short": "at least one; a policy without rules would approve everything",
    "float_type": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "string_type": "text; put it in quotes",
    "string_too_short": "some text",
    "tuple_type": "a list",
    "model_type": "keys with values",
    "model_attributes_type": "keys with values",
    "dict_type": "keys with values",
    "date_type": "a date, for example 2026-11-21",
    "date_from_datetime_parsing": "a date, for example 2026-11-21",
}
_PATTERNS = {
    NAME: "lower-case letters, digits, '.', '_' and '-', beginning with a letter or digit",
    DIGEST: "sha256: and 64 hexadecimal digits, as the report prints the model's digest",
}


D = TypeVar("D", bound=Document)


def validated(tree: Tree, kind: type[D]) -> D:
    """Return the document, or raise with every mistake that its shape has."""
    try:
        return kind.model_validate_json(json.dumps(tree.value))
    except ValidationError as exc:
        errors = exc.errors(include_url=False)
        # a list whose items are wrong is also reported as too short; the item is the news
        errors = [e for e in errors if not (e["type"] == "too_short" and e["input"])]
        found = [_problem(tree, error) for error in errors]
        raise PolicyFileError(*sorted(set(found), key=lambda p: (p.line, p.key))) from exc


def _problem(tree: Tree, error: Any) -> Problem:
    """Translate one error of pydantic into line, key, expectation and nearest name."""
    place = _without_tag(error["loc"])
    kind, ctx = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        known = _keys_beside(place, tree)
        key = str(place[-1])
        what, expected, near = f"unknown key {key!r}", f"one of {', '.join(known)}", nearest(key, known)
        if key == "observe":
            expected = f"no such key; {_OBSERVE}"
    elif kind == "missing":
        what, expected, near = "missing", _expected(place, tree), ""
    elif kind == "union_tag_not_found":
        place = (*place, "metric")
        what, expected, near = "missing", f"one of {', '.join(rules.ALL)}", ""
    elif kind == "union_tag_invalid":
        place = (*place, "metric")
        what, expected = f"unknown metric {ctx['tag']!r}", f"one of {', '.join(rules.ALL)}"
        near = nearest(ctx["tag"], rules.ALL)
    elif kind == "literal_error":
        given = error["input"]
        choices = [c.strip("'") for c in str(ctx["expected"]).replace(" or ", ", ").split(", ")]
        what, expected, near = f"{given!r} is not known", f"one of {', '.join(choices)}", nearest(given, choices)
        if given == "observe":
            expected = f"{expected}; {_OBSERVE}"
    elif kind == "privgate":
        if (*place, ctx["key"]) in tree.marks:
            place = (*place, ctx["key"])
        what, expected, near = ctx["text"], "", ""
    else:
        what, expected, near = f"{_shown(error['input'])} cannot be used", _sentence(error), ""
    return Problem(*tree.mark(place), dotted(place), what, expected, near)


def _without_tag(loc: tuple[Any, ...]) -> Place:
    """Return a location without the union's tag, which pydantic puts behind the rule's position."""
    if len(loc) > 2 and loc[0] == "rules" and loc[2] in rules.ALL:
        loc = (*loc[:2], *loc[3:])
    return tuple(loc)


def _model_at(place: Place, tree: Tree) -> Any:
    """Return the model whose keys stand at ``place``."""
    if place[:1] == ("rules",) and len(place) == 2:
        return rules.ALL[tree.value["rules"][place[1]]["metric"]]
    model: Any = Document
    for step in place:
        if isinstance(step, int):
            continue
        model = _inner(model.model_fields[step].annotation)
    return model


def _inner(annotation: Any) -> Any:
    """Return the model inside ``tuple[Model, ...]``, or the model itself."""
    return getattr(annotation, "__args__", (annotation,))[0]


def _keys_beside(place: Place, tree: Tree) -> list[str]:
    fields = _model_at(place[:-1], tree).model_fields
    return [field.alias or name for name, field in fields.items()]


def _expected(place: Place, tree: Tree) -> str:
    """Return a key's description as it reads inside a sentence."""
    fields = {f.alias or n: f for n, f in _model_at(place[:-1], tree).model_fields.items()}
    text = fields[str(place[-1])].description or "a value"
    return (text[:1].lower() + text[1:]).rstrip(".")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 40 else text[:37] + "..."


def _sentence(error: Any) -> str:
    """Return what pydantic expected, in our words where we have some."""
    kind, ctx = error["type"], error.get("ctx", {})
    if kind in _WORDS:
        return _WORDS[kind]
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(ctx["pattern"], f"text that matches {ctx['pattern']}")
    text = str(error["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    return text[:1].lower() + text[1:]
