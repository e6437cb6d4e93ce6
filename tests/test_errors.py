"""Errors as values: what they say and hold travels with them, to other processes too."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from callgate import Gate, OutputError, ScriptedModel, errors

MORE: dict[str, dict[str, Any]] = {
    "BlockedError": {"reason": "SAFETY", "ratings": [{"category": "X"}]},
    "InvalidRequestError": {"status": "INVALID_ARGUMENT", "field": "tools", "tool": "add"},
    "LimitExceededError": {"is_of_request": True},
    "MalformedAnswerError": {"finish_reason": "MALFORMED_FUNCTION_CALL"},
    "RateLimitedError": {"retry_after": 2.5, "quota": "per minute", "partial": "Hel"},
}
COPIES: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))]


def made(name: str) -> Exception:
    if name == "OutputError":
        with pytest.raises(OutputError) as caught:
            asyncio.run(Gate(ScriptedModel(["No."], repeat_last=True)).run("How many?", output=int))
        return caught.value
    message = ["first", "second"] if name == "ConversationInvalidError" else "the message"
    return getattr(errors, name)(message, **MORE.get(name, {}))


@pytest.mark.rows("copied", COPIES, ids=["copy", "deepcopy", "pickle"])
@pytest.mark.rows("name", errors.__all__)
def test_a_copy_of_an_error_says_and_holds_the_same(name: str, copied: Callable[[Any], Any]) -> None:
    error = made(name)
    error.add_note("a note")
    other = copied(error)
    assert (type(other), str(other), other.__dict__) == (type(error), str(error), error.__dict__)
