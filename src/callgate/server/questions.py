"""`/api/v1/questions`: answers to questions of MCP servers to the person who follows a run (MCP: elicitation).

The answer of a client comes in and goes to the run that waits for it (`run_person.py` asks). It must fit the server's form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callgate.errors import ToolNotDeclarableError
from callgate.mcp.host import Answer, Question
from callgate.schema import check_arguments
from callgate.server.body import read_json
from callgate.server.errors import HttpError, json_response
from callgate.server.openapi import Operation, table
from callgate.types import JsonObject, ToolDefinition

if TYPE_CHECKING:
    from callgate.server.service import Service

__all__ = ["routes"]

ANSWER: JsonObject = {
    "type": "object",
    "required": ["action"],
    "properties": {
        "action": {"enum": ["accept", "decline", "cancel"], "description": "The choice of the person."},
        "content": {"type": "object", "description": "The fields of the form; only with accept."},
    },
    "additionalProperties": False,
}


def _problems(question: Question, content: JsonObject) -> list[str]:
    """Say what of the answer does not fit the form."""
    if question.schema is None:
        return []
    definition = ToolDefinition(name="answer", input_schema={**question.schema, "type": "object"})
    try:
        return list(check_arguments(definition, content).problems)
    except ToolNotDeclarableError as error:
        return [str(error)]


async def answer(service: Service, request: Request) -> Response:
    """Answer a question that an MCP server asks the person who follows a run."""
    body = await read_json(request, ANSWER)
    session, question_id = request.path_params["session"], request.path_params["question"]
    run = service.run_of(session)
    asked = None if run is None else run.questions.get(question_id)
    if asked is None or asked.answer.done():
        await service.facts(session)
        raise HttpError(404, "not_waiting", f"no question {question_id!r} of session {session!r} waits for an answer here")
    content: Any = body.get("content") or {}
    if body["action"] == "accept" and (problems := _problems(asked.question, content)):
        raise HttpError(422, "invalid_request", " ".join(problems))
    asked.answer.set_result(Answer(body["action"], content if body["action"] == "accept" else None))
    return json_response({"session": session, "question": question_id, "action": body["action"]})


OPERATIONS = (
    Operation(
        "POST",
        "/api/v1/questions/{session}/{question}",
        answer,
        right="approve",
        takes=ANSWER,
        gives={200: {"type": "object", "required": ["session", "question", "action"]}},
    ),
)


def routes(service: Service) -> list[Route]:
    """The routes of questions."""
    return table(service, OPERATIONS)
