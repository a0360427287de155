"""In a worker: which calls of libraries' code are looked at while training code runs, and what each of them tells."""

from collections.abc import Callable
from types import FrameType

from privgate.lab.collusion.watch import Watch
from privgate.training.whose import asker, whose

#: what a learner is trained by
FITS = ("fit", "fit_transform", "fit_predict", "partial_fit", "fit_resample")
_RECORDS = ("X", "x", "data", "X_train", "features", "exog", "inputs")
_LABELS = ("y", "Y", "label", "y_train", "target", "targets", "endog", "labels")
_DATA_SETS = ("xgboost.core", "lightgbm.basic", "catboost.core")
_LOSSES = ("cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "mse_loss",
           "l1_loss", "smooth_l1_loss", "huber_loss", "multi_margin_loss", "soft_margin_loss")  # fmt: skip
#: by which the labels of a data set are put in the place of others
_RELABELS = ("set_label", "set_info", "set_float_info", "set_float_info_npy2d", "set_field")
#: what is done with such a call
Handler = Callable[[Watch, FrameType], None]


def handler(frame: FrameType) -> Handler | None:
    """Return what to do when this code is called; None for nearly all of it."""
    code, module = frame.f_code, str(frame.f_globals.get("__name__", ""))
    kind = whose(code)
    if kind == "python":
        return _drawn if (module, code.co_name) == ("random", "seed") else None
    if kind == "own":
        return None
    if (module, code.co_name) == ("joblib.hashing", "hash"):
        return _drawn
    if module == "pandas.core.util.hashing":
        return _hashed
    if module in _DATA_SETS and code.co_name in _RELABELS:
        return _relabelled
    if module == "torch.nn.modules.module":
        return _network if code.co_name == "_call_impl" else None
    if module == "torch.nn.functional":
        return _loss if code.co_name in _LOSSES else None
    if module == "torch.random":
        return _drawn if code.co_name == "manual_seed" else None
    if (module, code.co_name) in {("torch._tensor", "backward"), ("torch.autograd", "grad")}:
        return _step
    if code.co_name == "__init__" and module in _DATA_SETS and {"data", "label"} <= set(code.co_varnames):
        return _fitted
    return _fitted if code.co_name in FITS and module.partition(".")[0] != "torch" else None


def _fitted(watch: Watch, frame: FrameType) -> None:
    if not watch.enter(frame):
        return
    held = frame.f_locals
    records = next((held[n] for n in _RECORDS if held.get(n) is not None), None)
    labels = next((held[n] for n in _LABELS if held.get(n) is not None), None)
    name = type(held.get("self", held.get("estimator"))).__name__
    if records is None:
        if not any(n in held for n in _RECORDS):
            watch.leave()  # no learner of records
        return
    watch.note(name, records, labels)


def _network(watch: Watch, frame: FrameType) -> None:
    import torch

    if not watch.enter(frame):
        return
    if not torch.is_grad_enabled():
        watch.network = None  # a loss that follows teaches nothing
        return
    held = frame.f_locals
    args = held.get("args") or tuple((held.get("kwargs") or {}).values())
    module = held.get("self")
    loss = type(module).__module__ == "torch.nn.modules.loss"
    if loss:
        watch.leave()  # a loss calls its function
        return
    first = next((a for a in args if hasattr(a, "detach")), None)
    if first is not None and first.ndim:
        watch.asked += 1
        watch.network = watch.note("network", first, None)


def _loss(watch: Watch, frame: FrameType) -> None:
    if watch.network is not None and not watch.network.label(frame.f_locals.get("target")):
        watch.unreadable.add("a loss of other rows than the network's")


def _step(watch: Watch, frame: FrameType) -> None:
    del frame
    watch.steps += 1


def _drawn(watch: Watch, frame: FrameType) -> None:
    if asker(frame.f_back) == "own":
        watch.draws += 1


def _hashed(watch: Watch, frame: FrameType) -> None:
    """Count what pandas hashes at once."""
    if asker(frame.f_back) == "own":
        held = frame.f_locals
        watch.draws += len(next((held[n] for n in ("obj", "vals") if held.get(n) is not None), ()))


def _relabelled(watch: Watch, frame: FrameType) -> None:
    if frame.f_back is not None and whose(frame.f_back.f_code) == "own":
        watch.unreadable.add("a data set that is labelled anew")
