"""Requests of servers to the gate's own model (MCP: sampling), within a budget and asked about.

A request as MCP has it comes in, one for a model goes out, and its answer comes back as a result. Which model that is, and
what the run may spend on it, is the business of the run.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from callgate import strict_json
from callgate.content.build import call_from, model_content, part_of_media, response_part, text_part
from callgate.content.collect import RUNNABLE, ModelResponse
from callgate.content.tool_names import resolve_name
from callgate.declaration import declare, declared_names
from callgate.definitions.json_node import Node, ShapeError
from callgate.definitions.mcp import tools_from
from callgate.errors import CallgateError
from callgate.history.conversation import Conversation
from callgate.history.repair import repaired, validate
from callgate.host import LendModel
from callgate.mcp.host import Answer, Question, Sampling
from callgate.request import ModelRequest
from callgate.types import Content, FunctionCall, JsonObject, Part, ToolDefinition

__all__ = ["Loans", "RefusedError", "model_request"]

REJECTED = -1
"""MCP's code for a request that the user has rejected."""
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
TOOLS_MAX = 128

_STOP_REASONS = {"STOP": "endTurn", "MAX_TOKENS": "maxTokens"}
_SETTINGS = {"maxTokens": "max_output_tokens", "temperature": "temperature", "stopSequences": "stop_sequences"}


class RefusedError(Exception):
    """The server gets no answer; the message says why."""

    def __init__(self, message: str, code: int = REJECTED) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class _Spent:
    requests: int = 0
    tokens: int = 0


class Loans:
    """The requests of one server to models that are lent to it."""

    def __init__(self, server: str, terms: Sampling) -> None:
        self._server, self._terms = server, terms
        self._spent: weakref.WeakKeyDictionary[LendModel, _Spent] = weakref.WeakKeyDictionary()
        """The use of the model of each run."""

    def capabilities(self) -> Any:
        """The SDK's description of what is offered: tools, too."""
        from mcp_types import SamplingCapability, SamplingToolsCapability

        return SamplingCapability(tools=SamplingToolsCapability())

    async def answer(self, wanted: JsonObject, lend: LendModel | None, ask: Callable[[Question], Awaitable[Answer]]) -> Any:
        """The answer of the model, as the SDK has it.

        Raises:
            RefusedError: there is no model, the person says no, the budget is used up, or the model gives no answer.
        """
        from mcp_types import CreateMessageResultWithTools

        if lend is None:
            raise RefusedError("no run, or more than one, has a call under way, so there is no model to ask")
        request = model_request(wanted)
        spent = self._spent.setdefault(lend, _Spent())
        left = self._terms.tokens - spent.tokens
        if spent.requests >= self._terms.requests or left <= 0:
            raise RefusedError("the requests and tokens that this run lends to the server are used up")
        spent.requests += 1
        if self._terms.ask:
            asked = Question(server=self._server, message=_shown(wanted), wants_model=True)
            if (await ask(asked)).action != "accept":
                raise RefusedError("User rejected sampling request")
        most = min(left, request.settings["max_output_tokens"])
        request = replace(request, settings={**request.settings, "max_output_tokens": most})
        try:
            answer: ModelResponse = await lend(self._server, request)
        except CallgateError as error:
            raise RefusedError(f"the model gave no answer: {error}", INTERNAL_ERROR) from error
        spent.tokens += answer.usage.total_tokens
        result = _result(answer, request.declaration.names, answer.model or "callgate")
        return CreateMessageResultWithTools.model_validate(result, by_name=False)


def model_request(wanted: JsonObject) -> ModelRequest:
    """The request for a model.

    Raises:
        RefusedError: it is not one that a model can answer.
    """
    tools: list[JsonObject] = wanted.get("tools") or []
    given: JsonObject = wanted.get("toolChoice") or {}
    definitions = _definitions(tools)
    declared = {own: name for name, own in declared_names(definitions).items()}
    contents, _ = repaired(_contents(wanted["messages"], declared))
    if problems := validate(contents, sendable=True):
        raise RefusedError(f"the messages cannot be sent to a model: {problems[0]}", INVALID_PARAMS)
    choice: Any = (given.get("mode") or "auto") if definitions else "auto"
    return ModelRequest(
        conversation=Conversation(contents),
        definitions=tuple(definitions),
        declaration=declare(definitions, tool_choice=choice),
        tool_choice=choice,
        system=wanted.get("systemPrompt"),
        settings={ours: wanted[theirs] for theirs, ours in _SETTINGS.items() if wanted.get(theirs) is not None},
        stream=False,
    )


def _definitions(tools: Sequence[JsonObject]) -> list[ToolDefinition]:
    if len(tools) > TOOLS_MAX:
        raise RefusedError(f"{len(tools)} tools: at most {TOOLS_MAX} can be given", INVALID_PARAMS)
    found: dict[str, ToolDefinition] = {}
    for tool in tools:
        try:
            (read,) = tools_from(Node(tool))
        except ShapeError as error:
            raise RefusedError(f"a tool of the request cannot be read: {error}", INVALID_PARAMS) from error
        if read.definition.name in found:
            raise RefusedError(f"two tools of the request are called {read.definition.name!r}", INVALID_PARAMS)
        found[read.definition.name] = read.definition
    return list(found.values())


def _blocks(message: JsonObject) -> list[JsonObject]:
    content: Any = message.get("content") or []
    return cast("list[JsonObject]", content) if isinstance(content, list) else [content]


def _contents(messages: Sequence[JsonObject], declared: Mapping[str, str]) -> Iterator[Content]:
    names: dict[str, str] = {}
    for message in messages:
        parts: list[Part] = []
        for block in _blocks(message):
            if block["type"] == "tool_use":
                names[block["id"]] = declared.get(block["name"], block["name"])
                parts.append(call_from(names[block["id"]], block["input"], wire_id=block["id"]))
            elif block["type"] == "tool_result":
                known = names.get(block["toolUseId"], "unknown")
                call = FunctionCall(id=block["toolUseId"], name=known, args={}, wire_id=block["toolUseId"])
                media = [found for one in _blocks(block) if (found := _media(one)) is not None]
                parts.append(response_part(call, _response(block), media))
            else:
                parts.append(_media(block) or text_part(str(block.get("text", ""))))
        yield model_content(parts) if message["role"] == "assistant" else {"role": "user", "parts": parts}


def _media(block: JsonObject) -> Part | None:
    if block.get("type") not in ("image", "audio"):
        return None
    return part_of_media({"mime_type": block["mimeType"], "data": block["data"]})


def _response(block: JsonObject) -> JsonObject:
    """The response object: structured content, or the texts; other blocks as they are."""
    value: Any = block.get("structuredContent")
    if value is None:
        blocks = [one for one in _blocks(block) if _media(one) is None]
        texts = [one["text"] if one.get("type") == "text" else strict_json.dump(one).decode() for one in blocks]
        value = "\n".join(texts)
    if block.get("isError"):
        return {"error": value if isinstance(value, str) else strict_json.dump(value).decode()}
    return {"result": value}


def _result(answer: ModelResponse, names: Mapping[str, str], model: str) -> JsonObject:
    problem = next((call.problem for call in answer.calls if call.problem), None)
    if answer.finish_reason not in RUNNABLE or problem:
        why = problem or f"{answer.finish_reason} {answer.finish_message}".strip()
        raise RefusedError(f"the model gave no usable answer: {why}", INTERNAL_ERROR)
    blocks: list[JsonObject] = [{"type": "text", "text": answer.text}] if answer.text or not answer.calls else []
    for call in answer.calls:
        own = resolve_name(call.name, names) or call.name
        blocks.append({"type": "tool_use", "id": call.id, "name": own, "input": dict(call.args)})
    reason = "toolUse" if answer.calls else _STOP_REASONS[answer.finish_reason]
    # Servers of older revisions know a single block only, and have no tools.
    content: Any = blocks if answer.calls else blocks[0]
    return {"role": "assistant", "model": model, "stopReason": reason, "content": content}


def _shown(wanted: JsonObject) -> str:
    """The whole request as a person reads it before the model does."""
    lines = [f"system: {wanted['systemPrompt']}"] if wanted.get("systemPrompt") else []
    for message in wanted["messages"]:
        lines += [f"{message['role']}: {_words(block)}" for block in _blocks(message)]
    if tools := wanted.get("tools"):
        lines.append(f"tools of the server: {', '.join(str(tool['name']) for tool in tools)}")
    lines.append(f"at most {wanted['maxTokens']} tokens")
    return "\n".join(lines)


def _words(block: JsonObject) -> str:
    match block.get("type"):
        case "text":
            return str(block["text"])
        case "tool_use":
            return f"call of {block['name']} with {strict_json.dump(block['input']).decode()}"
        case "tool_result":
            return f"result {' '.join(map(_words, _blocks(block)))}"
        case kind:
            return f"[{kind} {block.get('mimeType', '')}]"
