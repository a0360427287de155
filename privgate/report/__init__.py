"""The report: one JSON document, and HTML, Markdown and JUnit rendered from it alone.

``document`` is the only place where a verdict is read; everything shown comes from its JSON, whose schema is
``privgate/schemas/report-v1.json``. A section appears when its data do. Measurements fill these optional keys of
``Evidence.detail`` (figures are numbers, or the words inf, -inf, nan; an *estimate* is a number or
``{value, low, high, confidence}``):

* ``plan``: ``{retrains, leave_one_out, shadows, seconds, cannot_conclude: [sentence]}``
* ``cannot_conclude``: the same list of sentences, where there is no plan
* ``recheck``: ``[{engine, checked, max_difference, tolerance}]``, nats
* ``seeds``: ``{paired, noise_floor, note}`` or any short facts, shown as they are
* ``coverage``: ``{n_measured, n_units, claim}``; the claim is one sentence about all units
* ``attacks``: ``[{name, title, kind, scope, where, auc, accuracy, tpr_at_fpr, roc, classes, groups, by, by_pdtp,
  n_members, n_nonmembers, n_shadows, threat_model, source, self_test, problem}]``; ``roc`` has points ``[fpr, tpr]`` or
  ``[fpr, tpr, low, high]``; ``tpr_at_fpr`` rows ``{fpr, tpr, low, high, resolvable}`` or a mapping fpr -> estimate;
  ``classes``, ``groups`` rows ``{name, value, low, high}`` of accuracy, or ``by`` rows ``{group, n, accuracy, auc}``;
  ``by_pdtp`` rows ``{pdtp_low, pdtp_high, n, accuracy}``; ``problem`` says why it did not run: it then is not tested
* ``attack_against_pdtp``: ``{points: [[pdtp, accuracy]], pearson, n, kind}``
* ``attack_null_runs``: ``{runs, alarms, nominal, low, high}``: false alarms of the limits
* ``dp``: ``[{name, epsilon, delta, prior, fpr, bound, measured, unit, assumptions, source}]``
* ``dp_facts``: ``[{name, value}]``: what was observed, the accountant, the audit
* ``dp_curve``: ``{fpr: […], tpr: […]}``: what no attack can exceed
* ``deletion``: ``[{rho, capacity}]``; ``deletion_by_prior``: ``[{prior, rho, capacity}]``
* ``certificates``: ``[{name, applies, because, source, assumptions}]``
* ``as_published``: ``[{name, value, corrected, because, source}]``: reported, approves nothing
* ``release``: ``{form, step, k, temperature, verified}``; else the subject's
* ``environment``: short facts, name -> text
* ``trace``: ``{command, seeds, digests, versions, timings, …}``
* ``comparison``: what ``compare`` returned

and of ``Verdict.detail``: ``decided_at``, ``expires`` (RFC 3339), ``signer`` (text or ``{name, key_id, advisory}``),
``waivers`` (``[{rule, status, reason, requester, approver, expires, ceiling}]``), ``next_steps``
(``[{action, effect, cost, rule}]``), ``comparison``.

Never put a feature value there. Names of units are replaced by keyed hashes wherever they stand, and the keys query,
queries, position, positions, features and rows are left out, because a query may be a person's own features. A group's
count below 10 must arrive as None.
"""

from privgate.report.comparison import compare
from privgate.report.document import SCHEMA, document
from privgate.report.files import write
from privgate.report.overview import index
from privgate.report.rendering import render

__all__ = ["SCHEMA", "compare", "document", "index", "render", "write"]
