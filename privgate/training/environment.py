"""What a worker process may know about its surroundings: no credentials, one thread for linear algebra."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

#: the only names that reach training code; everything else (registry credentials, cloud keys, tokens) stays outside
ALLOWED = ("PATH", "HOME", "LANG", "LANGUAGE", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "VIRTUAL_ENV",
           "CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG")  # fmt: skip  # whose GPU, and whether it repeats itself
ALLOWED_PREFIXES = ("LC_", "PYTHON", "COVERAGE_PROCESS_")
#: refused even below an allowed prefix
SECRET = ("TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL")

#: several processes that each start several threads are many times slower than one thread each
ONE_THREAD: Mapping[str, str] = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "BLIS_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "NUMBA_NUM_THREADS",
        # a library that asks for more than it is told: XGBoost with n_jobs=-1, LightGBM by its scikit-learn interface,
        # which without the second counts cores with another process and then waits for them, 40 s a training
        "OMP_THREAD_LIMIT",
        "LOKY_MAX_CPU_COUNT",
        "POLARS_MAX_THREADS",
        "RAYON_NUM_THREADS",
        "TF_NUM_INTRAOP_THREADS",
        "TF_NUM_INTEROP_THREADS",
    ),
    "1",
)


def allowed(name: str) -> bool:
    """Whether a variable of this name may reach training code."""
    if any(word in name.upper() for word in SECRET):
        return False
    return name in ALLOWED or name in ONE_THREAD or name.startswith(ALLOWED_PREFIXES)


def of_worker(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a worker is started with: only what is allowed, and one thread; the rest would stay in ``/proc``."""
    return {**{name: value for name, value in environ.items() if allowed(name)}, **ONE_THREAD}


def scrub(instead: Mapping[str, str] | None = None) -> None:
    """Delete every variable that is not allowed, in this process, for good; or all that is not ``instead``."""
    for name in [n for n in os.environ if not allowed(n) or (instead is not None and n not in instead)]:
        del os.environ[name]
    os.environ.update({**(instead or {}), **ONE_THREAD})


@contextmanager
def scrubbed() -> Iterator[None]:
    """Scrub for the length of a block, in a process that belongs to somebody else (a Dask worker).

    The only place that writes the environment of a process that may have threads of others; what training may see is
    never taken away from them, not even for a moment.
    """
    before = dict(os.environ)
    scrub()
    try:
        yield
    finally:
        for name in [n for n in os.environ if n not in before]:
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})
