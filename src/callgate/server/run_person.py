"""The person who follows a run, for MCP servers: a question comes in, goes out as an event of the run, and is waited for.

A run that nobody follows answers no question: it is declined at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from callgate.mcp.forms import fields_of
from callgate.mcp.host import Answer, Question
from callgate.server.runs import PendingQuestion, QuestionAsked, QuestionClosed, Run
from callgate.types import JsonObject

__all__ = ["RunPerson", "decline"]

QUESTIONS_MAX = 20
"""Questions of one run; a server that asks more is declined."""


@dataclass(slots=True, eq=False)
class RunPerson:
    """Questions to the clients that follow a run."""

    run: Run
    wait_s: float

    async def __call__(self, question: Question) -> Answer:
        """Ask one question; declined if nobody follows, cancelled if nobody answers."""
        run = self.run
        if run.is_over or not run.followers or run.questions_asked >= QUESTIONS_MAX:
            return Answer("decline")
        run.questions_asked += 1
        asked = PendingQuestion(f"q{run.questions_asked}", question, asyncio.get_running_loop().create_future())
        run.questions[asked.id] = asked
        run.add(QuestionAsked(asked.id, question_json(question)))
        answer = Answer("cancel")
        try:
            await asyncio.wait({asked.answer}, timeout=self.wait_s)
            if asked.answer.done() and not asked.answer.cancelled():
                answer = asked.answer.result()
            return answer
        finally:
            del run.questions[asked.id]
            run.add(QuestionClosed(asked.id, answer.action))


async def decline(question: Question) -> Answer:
    """Answer for calls that belong to no run: nobody can be asked."""
    return Answer("decline")


def question_json(question: Question) -> JsonObject:
    """A question as clients see it: the form's fields, or the page to visit."""
    fields: list[JsonObject] = [
        {
            "name": field.name,
            "kind": field.kind,
            "title": field.title,
            "description": field.description,
            "required": field.required,
            "options": [list(option) for option in field.options],
            "default": field.default,
        }
        for field in fields_of(question.schema or {})
    ]
    return {
        "server": question.server,
        "message": question.message,
        "url": question.url,
        "fields": fields,
        "wants_model": question.wants_model,
    }
