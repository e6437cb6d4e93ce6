"""The environment of worker processes: an allow-list, without the keys and tokens of the program."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["MORE", "worker_environment"]

MORE = "CALLGATE_WORKER_ENV"
"""The variable that names further ones, separated by commas; `NAME*` names all that begin like that."""
NAMES = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "SHELL", "SYSTEMROOT",
    "VIRTUAL_ENV", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "HF_HOME", "TERM", "NO_COLOR",
    "SOURCE_DATE_EPOCH",
})  # fmt: skip
PREFIXES = ("LC_", "PYTHON", "CONDA_", "CUDA_", "NVIDIA_", "OMP_", "MKL_", "OPENBLAS_", "COVERAGE_", "COV_", "RAY_")


def worker_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """The variables that a worker gets: those that programs need in order to run, and those that the user has named."""
    more = [word.strip() for word in ours.get(MORE, "").split(",") if word.strip()]
    names = {word for word in more if not word.endswith("*")} | NAMES
    prefixes = (*PREFIXES, *(word[:-1] for word in more if word.endswith("*")))
    return {name: value for name, value in ours.items() if name in names or name.startswith(prefixes)}
