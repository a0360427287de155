"""``mlflow.models.evaluate(…, evaluators="privgate")``: a check as one of MLflow's evaluations.

The evaluation's run gets metrics and the report's files, the model version what ``privgate check`` attaches.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlflow
from mlflow.exceptions import MlflowException
from mlflow.models.evaluation.artifacts import JsonEvaluationArtifact, TextEvaluationArtifact
from mlflow.models.evaluation.base import EvaluationResult, ModelEvaluator

from privgate.documents import LARGE, strict_json
from privgate.evaluation.notebook import STATED, load_hash_key, with_context
from privgate.run.run import Budget

#: keys of the configuration that say how a check runs, with what they are where absent
_FLEET = {"jobs": None, "ledger": None, "time_limit": 600.0, "isolation": "auto"}
_BUDGET = ("max_retrains", "budget_seconds", "shadow_models", "seeds")
_KNOWN = frozenset({"policy", "uri", "attach", "hash_key_file", *_FLEET, *_BUDGET, *STATED})
#: folder of the report among the run's artifacts
_PLACE = "privgate"


class PrivacyEvaluator(ModelEvaluator):  # type: ignore[misc]  # MLflow's own class has no annotations that are read
    """Judges the evaluated model by a policy.

    ``evaluator_config={"privgate": {"policy": "dtp-1"}}`` names the policy, and may hold ``uri`` (``models:/name/1``;
    the evaluated model's own id if absent), ``attach`` (false: nothing on the version), what page one states
    (``purpose``, ``owner``, ``data_name``, ``data_source``) and what the run may cost (``max_retrains``, ``jobs``,
    …). A model that is evaluated for something else is left alone: without a policy nothing is judged.
    """

    @classmethod
    def can_evaluate(cls, *, model_type: str, evaluator_config: Mapping[str, Any] | None, **kwargs: Any) -> bool:
        """Return whether a policy is named; no kind of model is refused before it was looked at."""
        del model_type, kwargs
        return "policy" in _own(evaluator_config)

    def evaluate(
        self,
        *,
        model_type: str,
        dataset: Any,
        run_id: str,
        evaluator_config: Mapping[str, Any] | None,
        model: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Check the model, log metrics and report to the run, and return both; ``MlflowException``: an unknown key."""
        del model_type, dataset, kwargs
        config = _own(evaluator_config)
        if unknown := sorted(set(config) - _KNOWN):
            raise MlflowException.invalid_parameter_value(
                f"evaluator_config of privgate has unknown keys {', '.join(unknown)}; "
                f"known: {', '.join(sorted(_KNOWN))}"
            )
        return _checked(str(config.get("uri") or _uri(model)), config, run_id)


def _own(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return our settings: MLflow takes them out of their nest only where ``evaluators`` is a list."""
    nested = (config or {}).get("privgate")
    return dict(nested if isinstance(nested, Mapping) else config or {})


def _uri(model: Any) -> str:
    held = getattr(getattr(model, "metadata", None), "model_id", None)
    if not held:
        raise MlflowException.invalid_parameter_value(
            "the evaluated model has no id; name it: evaluator_config={'privgate': {'uri': 'models:/name/1', …}}"
        )
    return f"models:/{held}"


def _checked(uri: str, config: Mapping[str, Any], run_id: str) -> Any:
    from privgate import registry, report
    from privgate.advice.search import evaluate
    from privgate.guard.verification import approved_report
    from privgate.policy import Policy
    from privgate.registry.attachments import log_metrics, refuse_unattachable
    from privgate.registry.files import refuse_written
    from privgate.training.fleet import Fleet

    policy, key = Policy.load(config["policy"]), load_hash_key(config.get("hash_key_file"))
    subject = registry.load_subject(uri)
    if config.get("attach", True):
        refuse_unattachable(subject)
    client = mlflow.MlflowClient()
    refuse_written(str(client.get_run(run_id).info.artifact_uri), tracking_uri=str(client.tracking_uri))
    given = {k: config.get(k, usual) for k, usual in _FLEET.items()}
    budget = Budget(**{k: config[k] for k in _BUDGET if k in config})
    with Fleet(isolate=given.pop("isolation"), **given) as fleet, tempfile.TemporaryDirectory() as scratch:
        verdict = evaluate(policy, subject, fleet=fleet, limits=budget)
        verdict = with_context(verdict, config)
        folder = Path(scratch, _PLACE)
        report.write(verdict, folder, hash_key=key, baseline=approved_report(f"models:/{subject.name}@production"))
        for name in report.PERSONAL:  # rows and cases of people: they stay with whoever holds the data
            (folder / name).unlink(missing_ok=True)
        metrics = log_metrics(client, run_id, subject, verdict)
        mlflow.log_artifacts(str(folder), _PLACE, run_id=run_id)
        if config.get("attach", True):
            registry.attach(subject, folder, verdict)
        at = f"{mlflow.get_run(run_id).info.artifact_uri}/{_PLACE}"
        artifacts = {
            "privgate_report": JsonEvaluationArtifact(
                uri=f"{at}/report.json", content=strict_json.read(folder / "report.json", LARGE)
            ),
            "privgate_summary": TextEvaluationArtifact(
                uri=f"{at}/summary.md", content=(folder / "summary.md").read_text(encoding="utf-8")
            ),
        }
    return EvaluationResult(metrics=dict(metrics), artifacts=artifacts, run_id=run_id)
