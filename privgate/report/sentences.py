"""Every word of page one, of the summary and of the terminal's verdict that is ours: what a translator translates.

A key, and the sentence with its values in braces. What comes from elsewhere is not here: names and digests, and the
title, message, meaning and advice of a finding, which a rule's own file holds (``privgate/policy/rules``) and a report
carries as text. ``tests/report/test_sentences.py`` renders page one in another language and looks for what is left.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from privgate.errors import UsageError
from privgate.evidence.figures import SPOKEN, WORDS

SENTENCES: Mapping[str, str] = {
    **WORDS,
    # headings and labels
    "masthead": "Privacy check before release",
    "skip": "Skip to the evidence",
    "measured_allowed": "{title}: measured {measured}, allowed {allowed}.",
    "bar.measured": "measured",
    "bar.allowed": "allowed",
    "why": "Why",
    "how_sure": "How sure",
    "accuracy": "Accuracy",
    "next": "What to do next",
    "next.one": "Next",
    "rules": "Rules",
    "not_shown": "What this does not show",
    "waiver": "Waiver",
    "judged": "What was judged",
    "evidence": "Evidence",
    "to_verify": "To verify",
    "column.result": "Result",
    "column.rule": "Rule",
    "column.measured": "Measured",
    "column.limit": "Limit and margin",
    "more_rows": "{count} more rows in",
    "more_rows.where": "all findings",
    "more_rows.report": "{count} more rows in the report.",
    # the decision
    "decision.approved": "approved",
    "decision.direct": "approved for direct queries only",
    "decision.beside": "approved for questions at or beside the record only",
    "decision.waived": "{approved}, under a waiver",
    "decision.warned": "{approved} with warnings",
    "decision.refused": "refused",
    "decision.screened": "undecided: a ranking of people approves nothing",
    "decision.undecided": "undecided: not enough evidence",
    "decision.observed": "observed only, nothing enforced (the rules would say: {decision})",
    "result.not needed": "Not needed",
    "result.passed": "Approved",
    "result.warned": "Warning",
    "result.inconclusive": "Undecided",
    "result.failed": "Refused",
    "result.waived": "{result} (waived)",
    "subject": "{name}, version {version}",
    "subject.unnamed": "unnamed model",
    "policy.unnamed": "unnamed",
    "rule.unnamed": "unnamed rule",
    # the verdict as one sentence
    "sentence.observed": "This run only observed: it neither releases nor refuses the model.",
    "sentence.no_rule": "The model may not be released: no rule of the policy “{policy}” was judged.",
    "sentence.all_met": "The model may be released: all {rules} rules of the policy “{policy}” approve it.",
    "sentence.one_met": "The model may be released: the one rule of the policy “{policy}” approves it.",
    "sentence.direct": "This covers questions about a person's own record only. Other questions have no limit.",
    "sentence.beside": "This covers questions at or beside a person's own record only. Other questions have no limit.",
    "sentence.conditions": "Some conditions below deserve attention.",
    "sentence.not_enforced": "The model may be released. {broken} of {rules} rules of the policy “{policy}” do not "
    "approve it, but they only warn or are waived.",
    "sentence.open": "The model may not be released: the evidence does not decide the policy “{policy}”. "
    "That is no proof of a leak.",
    "sentence.condition": "The model may not be released: a condition does not hold, and no figure counts without it.",
    "sentence.one_broken": "The model may not be released: 1 of {rules} rules of the policy “{policy}” refuses it.",
    "sentence.only_broken": "The model may not be released: the one rule of the policy “{policy}” refuses it.",
    "sentence.broken": "The model may not be released: {broken} of {rules} rules of the policy “{policy}” refuse it.",
    # the questions that a release is
    "questions": "What was asked",
    "question.influence": "the influence of one person",
    "question.membership": "who was in the data",
    "question.file": "records in the file",
    "question.claim": "the claim of differential privacy",
    "question.only_warned": "{name}: this policy only warns, {value}; {limit} is allowed{margin}.",
    "question.not_asked": "{name}: not asked by this policy.",
    "question.approved": "{name}: approved, {value}; {limit} is allowed{margin}.",
    "question.warned": "{name}: approved with a warning, {value}; {limit} is allowed{margin}.",
    "question.undecided": "{name}: undecided, {value}; {limit} is allowed{margin}.",
    "question.refused": "{name}: refused, {value}; {limit} is allowed{margin}.",
    "question.otherwise": "{rule} does not approve by itself: {value}, where {limit} is allowed.",
    "at_delta": " at delta {delta}",
    "margin.left_guess": "{share} of the room between guessing and the limit is left",
    "margin.left_min": "{share} of the limit more than it asks for",
    "margin.left": "{share} of the limit is left",
    "margin.over_guess": "beyond the limit by at least {share} of the room between guessing and it",
    "margin.over_min": "at least {share} of the limit too little",
    "margin.over": "at least {share} of the limit too much",
    "margin.unlimited": "nothing limits it",
    "margin.beyond": "beyond the limit",
    "margin.both": "the interval lies on both sides of the limit",
    # what could happen to a person
    "harms": "What could happen to a person",
    "harm.column": "What could happen",
    "likely.column": "How likely, as measured",
    "bad.column": "How bad",
    "harm.influence": "Answers tell somebody what only this person's record told the model.",
    "harm.membership": "Somebody finds out that this person is in the training data.",
    "harm.file": "Somebody who gets the file reads this person's record in it.",
    "harm.claim": "Training protects this person less than its claim of differential privacy says.",
    "bad.influence": "As bad as what labels and features say about a person.",
    "bad.membership": "As bad as what being in these data says, such as an illness or a debt.",
    "bad.file": "Severe: the record itself is read, and nobody can take it back.",
    "bad.claim": "As bad as what labels and features say about a person.",
    "likely.dtp": "Without one person, an answer's probability changes: {value}.",
    "likely.pdtp": "Without one person, the answer about that person changes: {value}.",
    "likely.sensitivity": "Without one person, an answer moves: {value}.",
    "likely.attack_accuracy": "{value} of guesses about membership are right; a coin reaches 50 %.",
    "likely.attack_advantage": "The best attack flags members more often than candidates: {value}.",
    "likely.dp_epsilon": "Training lets one person's data shift the odds of a guess: {value}.",
    "likely.attack_tpr": "{value} of members are found at the allowed rate of false accusations.",
    "likely.generalization_gap": "The model does better on its training data than on candidates: {value}.",
    "likely.file_records": "The file holds {value} of the training data.",
    "likely.dp_attack_accuracy_bound": "By what training guarantees, the best attack is right: {value}.",
    "likely.other": "{title}: {value}.",
    "likely.unknown": "Not known: it was not measured.",
    "likely.not_asked": "Not known: this policy does not ask it.",
    # warnings, what remains, who signs
    "weighed": "Warnings, and why they refuse nothing",
    "weighed.none": "There is no warning.",
    "weighed.rule": "{rule}: {value}, where {limit} is allowed. The policy only warns of it.",
    "weighed.condition": "“{rule}” is a condition that only warns, and here it warns.",
    "weighed.more": "More warnings stand in the evidence: {count}.",
    "remains": "What risk remains, and who accepted it",
    "remains.limits": "Every risk within the limits above remains. Whoever set the policy “{policy}” accepted it.",
    "remains.margin": "Counted in shares, the smallest margin is that of “{rule}”: {margin}.",
    "remains.not_asked": "The risk of what was not asked remains, and nobody accepted it here: {names}.",
    "remains.refused": "This check releases nothing, and nobody accepts a risk by it.",
    "remains.waived": "{approver} accepted by waiver that “{rule}” does not approve, until {until}.",
    "mitigations": "Mitigations that were measured",
    "mitigations.none": "No mitigation that was measured is proposed.",
    "mitigations.one": "{action}: it would use at most {share} of the nearest limit; {measure} {useful}, not {now}.",
    "signing": "Advice and sign-off",
    "sign.severity": "How bad it would be for a person, and why",
    "sign.mitigations": "Mitigations refused, and why",
    "sign.advice": "Advice of the data protection officer",
    "sign.accepted": "Remaining risk accepted by (name, role, date)",
    "sign.signed": "Signature",
    "history.none": "No approved version was compared with this one.",
    # why, and how sure
    "why.none": "No rule was judged.",
    "why.measured": "{title}: {value}. {limit} is allowed{margin}.",
    "why.message": "{title}: {message}",
    "why.other_met": "The other rule approves as well.",
    "why.others_met": "The other {count} rules approve as well.",
    "why.one_more": "1 more rule below.",
    "why.more": "{count} more rules below.",
    "sure.none": "No figure decided this: a condition does not hold, or a figure is missing.",
    "sure.exact": "Exact, or within the error bounds that the evidence lists.",
    "sure.proof": "Exact, or limited by a certificate whose conditions the evidence lists.",
    "sure.below": "What was seen is certain; no upper limit is known.",
    "sure.interval": "Intervals hold at {level} % confidence.",
    "sure.point": "Some figures are estimates without an interval; they approve and refuse nothing.",
    "sure.some": "{count} of {total} {who} were measured.",
    "sure.tried": "{members} members of {people} and {candidates} candidates were tried.",
    "sure.drawn": "They were drawn at random.",
    "sure.unknown": "Nothing is known of the others.",
    "sure.beyond": "At most {share} of people may exceed the upper limit ({level} % sure).",
    "sure.own_coins": "Training draws: this holds for the recorded seed.",
    "sure.own_above": "Training draws: at the recorded seed it is {figure}; other seeds confirm only the lower end.",
    "sure.seeds": "It is a mean over {count} runs of training, not of this very model.",
    "sure.stopped": "The others were not measured, because the verdict was decided.",
    "sure.all": "All {count} {who} were measured.",
    "sure.all_estimated": "All {count} {who} were estimated; some, drawn at random, were measured by training.",
    "sure.all_bounded": "All {count} {who} were measured, some only closely enough to show that they are not the "
    "largest.",
    "sure.people": "people or records",
    "sure.records": "records",
    # rows, conditions, waivers
    "row.waived": "Waived: {waiver}.",
    "row.title": "Condition: {title}",
    "row.condition": "should hold",
    "held.none": "No condition was checked.",
    "held.all": "All {count} conditions hold. The evidence lists them.",
    "held.some": "{held} of {count} conditions hold. The table shows the others.",
    "waiver.told": "{rule} ({status}): {reason}, approved by {approver}, until {until}",
    # conditions
    "condition.reproduces": "The recipe reproduces the registered model",
    "condition.depends_on_data": "The recipe depends on its data",
    "condition.remembers_nothing": "Training remembers nothing of earlier ones",
    "condition.recorded_seed": "The noise cannot be regenerated",
    "condition.environment": "Same environment as recorded",
    "condition.keys": "The model keeps no table of keys of records",
    "condition.provenance": "What training is given was not made of its data",
    "condition.domain_enforced": "The served model refuses what its domain rules out",
    "condition.file": "The file holds no records of the training data",
    "condition.digests": "Files are those that were named",
    "condition.labels": "Labels are usable",
    "condition.targets": "Targets are numbers",
    "condition.task": "Labels are labels",
    "condition.class_of_one": "No label belongs to one person only",
    "condition.duplicates": "No two people have equal records",
    "condition.near_duplicates": "No two people have almost equal records",
    "condition.several_records": "Each person has one record, or is named",
    "condition.overlap": "No candidate is in the training data",
    "condition.people": "Enough people are at hand to decide every rule",
    "condition.near_overlap": "No candidate is almost in the training data",
    "condition.same_population": "Candidates are like the people in the data",
    "condition.served": "MLflow serves what is declared",
    "condition.min_rows": "Enough records",
    "condition.mode": "People were measured, not only ranked",
    "condition.dp_claim": "The privacy claim agrees with what was seen",
    "condition.dp_sampling": "Batches are drawn as the claim says",
    "condition.dp_parameters": "Noise and clipping are as the claim says",
    "condition.dp_doubt": "Nothing about the claim is in doubt",
    "condition.dp_hazard": "Nothing is known to defeat the claim",
    "condition.certificate": "Real models keep within the certificate ({name})",
    "condition.suite": "Expectations of {name} hold",
    "condition.coins": "The released answers are usual among other seeds",
    "condition.other_coins": "What was measured holds at other seeds",
    "condition.answers": "Leaving people out explains the answers",
    "condition.leave_one_out_moves": "Leaving a person out changes the model",
    "condition.recipe": "The training function holds no records",
    "condition.remembered": "Remembered trainings are what training gives",
    "condition.dp_declared_only": "The privacy claim was observed",
    "condition.dp_leftovers": "No gradients of single records are kept",
    "condition.recheck": "Fast engine agrees with retraining ({name})",
    # what to do next
    "next.release": "Have this version signed and release it. Check again when data, code or parameters change.",
    "next.release_until": "Have this version signed and release it. Check again before {until}, and when data, "
    "code or parameters change.",
    "next.unsigned": "Nobody can sign this check. Check a registered version, without --remembered.",
    "next.observed": "Check again without only observing: that run can release this version.",
    "next.read": "Read what decided it, change the training or supply what is missing, and check again.",
    "next.effect": "effect: {value}",
    "next.cost": "cost: {value}",
    "next.measured": "at most {share} of the limit; {measure} {useful} instead of {now}",
    "since.approved": "Since the last approved version",
    "since.version": "Since version {version}",
    "history": "History",
    # what this does not show
    "not_tested": "Not tested: {kinds}.",
    "limits.attack": "An attack that finds little is evidence against that attack and sample size, not against "
    "every attack.",
    "limits.theorem": "A certificate holds under its conditions only. The evidence lists them.",
    "limits.others": "Other models on the same data, logs of the service and the data store were not examined.",
    "limits.legal": "The report replaces neither legal advice nor an impact assessment. It is evidence for one.",
    "limits.public": "Declared public, which nobody can check: {names}.",
    "limits.no_attack": "A limit on influence stops no attack. No rule here limits attacks; {policy} does.",
    "limits.temperature": "Dividing scores by the declared temperature {temperature} stops none either.",
    "kind.membership inference": "membership inference",
    "kind.attribute inference": "attribute inference",
    "kind.model inversion": "model inversion",
    "kind.reconstruction": "reconstruction",
    "kind.training-data extraction": "training-data extraction",
    # facts
    "fact.data": "Data set",
    "fact.source": "Data source",
    "fact.purpose": "Purpose",
    "fact.owner": "Owner",
    "fact.checked_by": "Checked by",
    "fact.judged": "What was judged",
    "fact.model": "Model digest",
    "fact.policy": "Policy",
    "fact.level": "DTP level",
    "fact.size": "Number of records",
    "size.public": "taken as public by the claim of differential privacy",
    "size.secret": "secret by the claim of differential privacy",
    "size.not_looked_at": "secret by the claim of differential privacy, but not looked at",
    "size.doubtful": "secret by the claim of differential privacy, but {why}",
    "fact.decided": "Decided",
    "fact.valid": "Valid until",
    "fact.signed": "Signed by",
    "fact.measured": "Measured",
    "not_stated": "not stated",
    "answers": "its answers ({release}), {file}",
    "file.withheld": "not its file, which the {who} states cannot be downloaded",
    "file.policy": "policy",
    "file.operator": "operator",
    "file.not_judged": "not its file",
    "file.looked": "and whether its file holds records",
    "file.unread": "its file was to be judged and could not be",
    "file.judged": "and its file",
    "file.would_be": "and what its file would carry (none is stored)",
    "language": "The evidence below, and texts of rules, are in English.",
    "sure.claim": "The evidence says what the sample tells about the others.",
    "release.probabilities": "exact probabilities of every label",
    "release.numbers": "exact numbers",
    "release.noisy": "numbers with noise added",
    "release.rounded": "probabilities rounded to a step",
    "release.binned": "probabilities in bins",
    "release.top_k": "the most probable labels only",
    "release.label": "the most probable label only",
    "undated": "date not recorded",
    "no_statement": "no statement signed yet",
    "unsigned": "not by this report: a signature is a separate step, in a statement of its own",
    "mode.max": "the exact maximum only",
    "mode.screen": "by a ranking, which approves nothing",
    "level.none": "none reached",
    "ran": "{who}; {apart}",
    "ran.where": "{who} on {where}; {apart}",
    "apart": "training code isolated by {box}",
    "not_apart": "training code not isolated",
    "records": "{records} records",
    "records.people": "{records} records of {people} people",
    "accuracy.told": "The model is right about {share} of {people} candidates.",
    "accuracy.none": "How often the model is right was not measured.",
    "accuracy.nobody": "How often the model is right was not measured: there are no candidates.",
    # what tells two rules of one kind apart
    "scope.model": "all people together",
    "scope.class": "the worst label",
    "scope.group": "the worst group",
    "scope.record": "single records",
    "scope.other": "{option} {value}",
    # the terminal
    "terminal.passed": "APPROVED",
    "terminal.warned": "APPROVED WITH WARNINGS",
    "terminal.inconclusive": "UNDECIDED",
    "terminal.failed": "REFUSED",
    "terminal.total": "{approve} of {rules} rules approve, {refuse} refuse, {undecided} are undecided, {warn} warn.",
    "terminal.margin": "Smallest margin: {rule}: {margin}.",
    "terminal.head": "{decision}  {subject}  by policy {policy}",
    "terminal.subject": "{name} version {version}",
}


#: languages that a page can be written in; English is the table above
LANGUAGES = ("en", "de", "fr")


def say(key: str, **values: object) -> str:
    """Return the sentence of a key with its values in place, in the language that is spoken."""
    return (SPOKEN.get().get(key) or SENTENCES[key]).format(**values)


def known(key: str) -> str:
    """Return the sentence of a key as it stands; empty if there is none."""
    return SPOKEN.get().get(key) or SENTENCES.get(key, "")


def foreign() -> bool:
    """Whether another language than English is spoken: what a report carries as text is quoted then."""
    return bool(SPOKEN.get())


@contextmanager
def spoken(language: str) -> Iterator[None]:
    """Speak a language of ``LANGUAGES`` within this block.

    Raises
    ------
    UsageError
        It is none of them.
    """
    if language not in LANGUAGES:
        raise UsageError(f"{language!r} is no language of reports; write one of {', '.join(LANGUAGES)}")
    token = SPOKEN.set({} if language == "en" else _table(language))
    try:
        yield
    finally:
        SPOKEN.reset(token)


def translated(text: str) -> str:
    """Return advice that a report carries as English text in the language that is spoken; empty if it is not known."""
    code = SPOKEN.get().get("code", "en")
    if code == "en":
        return text
    for pattern, told in _advice():
        if found := pattern.fullmatch(text):
            return told[code].format(**{name: translated(v) or v for name, v in found.groupdict().items()})
    parts = [translated(part) for part in text.split("; ")] if "; " in text else []
    return "; ".join(parts) if all(parts) else ""


@cache
def _advice() -> Sequence[tuple[re.Pattern[str], Mapping[str, str]]]:
    """Return patterns of English advice, and what each is elsewhere. A name is one word, a command anything."""
    kinds = {"name": r"\S+", **dict.fromkeys(("command", "said", "some", "how", "rest"), ".+")}
    text = (Path(__file__).parent / "languages/steps.json").read_text(encoding="utf-8")
    return [
        (
            re.compile(re.sub(r"\\{(\w+)\\}", lambda m: f"(?P<{m[1]}>{kinds.get(m[1], '[^;:]+')})", re.escape(said))),
            told,
        )
        for said, told in json.loads(text).items()
    ]


@cache
def _table(language: str) -> Mapping[str, str]:
    """Return a language's table; ``tests/report/test_languages.py`` holds it against the English one, key by key."""
    text = (Path(__file__).parent / "languages" / f"{language}.json").read_text(encoding="utf-8")
    table: dict[str, str] = json.loads(text)
    return table
