"""Messages of the machine to the model: why a request is repeated, and placeholders for omitted content."""

from __future__ import annotations

from callgate.history.shorten import SUMMARY
from callgate.machine import facts

__all__ = ["ASK_AGAIN", "CUT", "IN_TEXT", "SUMMARY", "output_feedback"]

# Finish reasons that lead to another request, and the feedback: what was wrong, and what to do if the model can call
# tools. Only one sentence explains how calls are made, because models differ in that.
ASK_AGAIN = {
    "MALFORMED_FUNCTION_CALL": ("Your last answer was not a valid call and was discarded.", facts.HOW_TO_CALL),
    "UNEXPECTED_TOOL_CALL": (
        "Your last answer called a tool that cannot be called now and was discarded.",
        "Call only the tools that you were told of, or answer in text.",
    ),
    "TOO_MANY_TOOL_CALLS": ("Your last answer made too many calls at once and was discarded.", "Make fewer calls."),
    "MALFORMED_RESPONSE": ("Your last answer was malformed and was discarded.", "Please answer again."),
    "": ("Your last answer was empty.", "Please answer the user, or call a tool."),
}
IN_TEXT = "Please answer in text."
CUT = (
    "Not run: the answer was cut off at its limit of tokens, perhaps within this call. Make it again, in several smaller "
    "calls if it is a long one."
)

_OUTPUT_AGAIN = (
    "Your last answer does not have the form that is needed: {problems}. Answer again, with JSON alone that fits the JSON "
    "Schema of the answer: no other words, no code fence. It was:\n{answer}"
)
OUTPUT_SHOWN_MAX = 4_000
"""Characters of an answer that does not fit which the model is shown again."""


def output_feedback(problems: tuple[str, ...], answer: str) -> str:
    """The feedback for an answer that does not fit."""
    return _OUTPUT_AGAIN.format(problems="; ".join(problems), answer=answer[:OUTPUT_SHOWN_MAX])
