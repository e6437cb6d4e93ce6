"""The OpenAPI document is true: requests made up from it are answered as it says, whatever is in them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import InvalidArgument as Unsupported
from hypothesis.errors import Unsatisfiable

from callgate import Gate, Policy, ScriptedModel, tool
from callgate.server import Service
from callgate.testing import call

from .conftest import SCALE, Site, serving

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance  # noqa: E402 - only where it is installed


@tool
def poke(where: str) -> str:
    """Pokes."""
    return where


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A service with sessions of every kind in it."""
    model = ScriptedModel([call("poke", where="here"), "Poked."] * 3 + ["Hm."], repeat_last=True)
    with serving(Service(Gate(model, [poke], policy=Policy(default="ask")))) as running:
        for session in ("0", "1", "s"):
            assert running.chat({"prompt": "Poke.", "session": session}).status in (200, 202)
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.judge("schemathesis")
def test_every_operation_answers_as_the_document_says(site: Site, mode: str) -> None:
    api = schemathesis.openapi.from_url(f"http://127.0.0.1:{site.port}/openapi.json")
    operations = [result.ok() for result in api.get_all_operations()]
    assert len(operations) >= 15
    failed = {}
    for operation in operations:
        try:
            _check(operation, schemathesis.GenerationMode(mode))
        except (Unsatisfiable, Unsupported):
            assert mode == "negative", f"nothing can be made up for {operation.label}"
        except (Exception, BaseExceptionGroup) as error:
            failed[operation.label] = error
    assert not failed, "\n".join(f"{label}: {error}" for label, error in failed.items())


def _check(operation, mode) -> None:
    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=5 * SCALE, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def answered(case) -> None:
        # What a document cannot say, such as which providers there are, may be refused with a sentence.
        response = case.call(timeout=60)
        # A body with too many values is refused before anybody reads them.
        unjudged = [negative_data_rejection] if response.status_code == 413 else []
        case.validate_response(response, excluded_checks=[positive_data_acceptance, *unjudged])

    answered()
