"""What the schema tests share: the compiled forms of a schema, read back and judged."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from callgate.schema import Compiled, compile_schema

FORMS = (("parametersJsonSchema", "developer"), ("parameters", "developer"), ("parameters", "vertex"))
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "declare_corpus.py"


def _loaded() -> ModuleType:
    """The script that judges the tools of a file; the tests judge by the same rules."""
    spec = importlib.util.spec_from_file_location("declare_corpus", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


CORPUS = _loaded()


def faults(compiled: Compiled, field: str, surface: str) -> list[str]:
    """Everything that is wrong with a compiled form: fields that do not exist, what protobuf or the server would refuse."""
    if compiled.schema is None:
        return []
    refusal = CORPUS.protobuf_refusal(compiled.schema, field, surface)
    found = CORPUS.undocumented(compiled.schema, field, surface) + CORPUS.broken_rules(compiled.schema, field, surface)
    return [*found, refusal] if refusal else found


@pytest.fixture(scope="session")
def corpus() -> ModuleType:
    """`scripts/declare_corpus.py`."""
    return CORPUS


@pytest.fixture(scope="session")
def wire() -> SimpleNamespace:
    return SimpleNamespace(
        forms=FORMS, accepts=CORPUS.accepts, faults=faults, nodes=CORPUS.nodes, read_back=CORPUS.read_back,
        compile=compile_schema,
    )  # fmt: skip
