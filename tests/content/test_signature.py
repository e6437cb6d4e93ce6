"""Signatures of the Interactions API that travel on parts: back to their origin, and to nobody else."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from callgate.content.build import from_elsewhere
from callgate.content.read import SKIP_SIGNATURE, has_interactions_mark
from callgate.content.signature import marked_signature, own_signature, signed_parts

GEMINI = "developer:gemini-3.8-flash"
OWN, OTHER = "interactions:developer:gemini-3.8-flash", "interactions:developer:gemini-3.8-pro"


def part(signature: str) -> dict[str, Any]:
    return {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": signature}


@pytest.mark.parametrize("signature", ["c2ln", "a+/b==", "a-_b", "odd", "ä", "x" * 5_000])
def test_a_marked_signature_is_read_by_its_origin_alone_in_every_spelling_of_base64(signature: str) -> None:
    marked = marked_signature(OWN, signature)
    again = base64.b64encode(base64.urlsafe_b64decode(marked)).decode()
    for spelled in (marked, again, again.rstrip("=")):
        assert (own_signature(part(spelled), OWN), own_signature(part(spelled), OTHER)) == (signature, None)
        assert has_interactions_mark(part(spelled))


@pytest.mark.parametrize("signature", ["", "c2ln", SKIP_SIGNATURE, "Y2FsbGdhdGUu", "Y2FsbGdhdGUu!", "Y2FsbGdhdGUuAAAA"])
def test_no_other_signature_is_taken_for_a_marked_one(signature: str) -> None:
    assert own_signature(part(signature), OWN) is None


def test_another_api_is_sent_the_placeholder_instead_of_a_marked_signature() -> None:
    content = {"role": "model", "parts": [part(marked_signature(OWN, "c2ln"))]}
    [seen] = from_elsewhere(content, origin=GEMINI, vouch=True)["parts"]
    assert seen["thoughtSignature"] == SKIP_SIGNATURE
    genuine = {"role": "model", "parts": [part("c2ln")]}
    assert from_elsewhere(genuine, origin=GEMINI, vouch=True) == genuine


def test_each_signature_is_on_the_call_that_it_led_to_and_the_last_one_at_the_end() -> None:
    def thought(signature: str) -> dict[str, Any]:
        return {"type": "thought", "signature": signature}

    def call(id: str) -> dict[str, Any]:
        return {"type": "function_call", "id": id, "name": "f", "arguments": {}}

    steps = [thought("one"), call("1"), call("2"), thought(""), thought("two"), call("3"), thought("three")]
    parts = [{"functionCall": {"id": id, "name": "f", "args": {}}} for id in ("1", "2", "3")]
    signed = signed_parts({"role": "model", "parts": parts, "interaction": {"origin": OWN, "steps": steps}})
    assert [own_signature(part, OWN) for part in signed] == ["one", None, "two", "three"]
    assert signed_parts({"role": "model", "parts": parts}) == parts
