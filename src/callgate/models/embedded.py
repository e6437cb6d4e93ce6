"""The embedded model as a model: requests in, chunks out, on this machine and without a key.

A request of the runtime comes in. callgate's own small model is asked in the format that it was trained on, under a grammar
made from the declared tools; any other GGUF file is asked through its own chat template. All knowledge of prompts, grammars,
files and the process is in `callgate.embedded`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, cast

from callgate.content.build import call_part, say, text_part
from callgate.content.read import text_of
from callgate.embedded import prompt
from callgate.embedded.chat import ChatReader, chat_body
from callgate.embedded.decoder import Decoded, Decoder, Step
from callgate.embedded.effects import with_effects_checked
from callgate.embedded.engine import Engine, EngineSettings, on_loop, shared_engine, until
from callgate.embedded.file_results import next_try, told_result
from callgate.embedded.grammar import answer_grammar, grammar_of
from callgate.embedded.mentions import Mentions, mentions_of
from callgate.embedded.missing_args import made_up, question, respelled
from callgate.embedded.reply import ReplyReader, usage_of
from callgate.embedded.scope import DECLINED, scope_answer
from callgate.embedded.spelling import spellings
from callgate.embedded.weights import MODEL_NAME, Files, find_files, read_checked
from callgate.errors import LimitExceededError
from callgate.events import Notice
from callgate.history.repair import starts_exchange
from callgate.request import ModelRequest, with_output_prompt
from callgate.types import Content, FunctionCall, JsonObject, Part, ToolDefinition, Usage

__all__ = ["EmbeddedModel"]

logger = logging.getLogger("callgate.embedded")

CONTEXT = 4096
"""Tokens of prompt and answer together; the keys and values of a context take 23 KiB a token."""
TOOL_TOKENS_MAX = 1024
"""Tokens of the list of tools. The model was trained with up to twelve tools in at most this much."""
ANSWER_TOKENS = 400
RESULT_CHARS_MAX = 1_200
"""Characters of one result that the model is shown."""

ANSWER_S_MAX = 30.0
"""The longest that an answer may take, from its turn on."""
TOO_SLOW = (
    f"I stopped after {ANSWER_S_MAX:.0f} seconds: this machine is too busy for me at the moment. Please try again, or use "
    "Gemini."
)

ABOUT = (
    f"{MODEL_NAME} answers: a small language model on this machine's CPU, so check what it says and does. "
    "Set GEMINI_API_KEY to use Gemini."
)

_SETTINGS = {
    "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "seed": "seed", "stop_sequences": "stop",
    "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty",
}  # fmt: skip
"""Settings in plain words -> llama.cpp's names for them."""


class EmbeddedModel:
    """A model that runs on this machine.

    Args:
        path: A GGUF file; None is callgate's own model, `callgate-tools-135m`.
        context: Tokens of prompt and answer together; None means 4096, or less where the model was made for less.
        threads: Processors to use; 0 means all that this program may use, half of them on a busy machine.
        announce: Whether the first answer comes with a notice that names the model.
        grammar: Whether callgate's own model is held to the grammar. Without it calls may be malformed.
        ask: Whether a call without a required argument becomes a question (see `callgate.embedded.missing_args`).

    Raises:
        UsageError: the files are missing or not whole.
    """

    provider = "callgate.embedded"
    is_free = True
    calls_by_prompt = True
    """Tools are declared in the format that it was trained on, in every mode."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        context: int | None = None,
        threads: int = 0,
        announce: bool = True,
        grammar: bool = True,
        ask: bool = True,
    ) -> None:
        self._own = path is None
        files = find_files() if path is None else Files(os.path.abspath(os.fspath(path)))
        made_for = read_checked(files.base).context_max or CONTEXT
        self._context = min(context or CONTEXT, made_for)
        self._name = MODEL_NAME if path is None else os.path.basename(files.base).removesuffix(".gguf")
        self._announce = announce and path is None
        self._grammar = grammar
        self._ask = ask
        self._engine: Engine = shared_engine(EngineSettings(files=files, context=self._context, threads=threads))
        self._counted: dict[str, int] = {}
        self._template_has_tools: bool | None = None

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._name

    @property
    def engine(self) -> Engine:
        """The process that does the work, shared by all models of the same file and context."""
        return self._engine

    def load(self) -> None:
        """Load the model now instead of with the first request; blocks until it is there.

        Raises:
            UsageError: it cannot be loaded.
        """
        self._engine.start()

    async def count_tokens(self, request: ModelRequest) -> int:
        """The number of tokens of a request's prompt."""
        await self._engine.ready()
        if not self._own:
            return await self._engine.tokens("\n".join(text_of(content) for content in request.contents))
        plan = await self._plan(request)
        return plan.tokens

    async def prepare(self, request: ModelRequest) -> None:
        """Read what every prompt with these tools begins with, so that the first question need not wait for it.

        Raises:
            UsageError: it cannot be loaded.
        """
        await self._engine.ready()
        if self._own and request.definitions:
            shown, left_out = await self._shown_tools(_as_declared(request), request.contents)
            if left_out:  # Which ones fit is decided by the question.
                return
            async with self._engine.turn():
                await self._engine.begin_with(_system_turn(shown, request))

    @property
    def known_settings(self) -> Collection[str]:
        """The settings that it understands."""
        return ("max_output_tokens", *_SETTINGS)

    async def generate(self, request: ModelRequest) -> AsyncGenerator[JsonObject | Notice, None]:
        """Ask the model.

        Raises:
            UsageError: it cannot be loaded.
            LimitExceededError: the newest message does not fit into the context.
        """
        await self._engine.ready()
        form = None if request.definitions else request.output
        if request.output is not None and (self._own or form is None):
            request = with_output_prompt(request)
        if self._announce:
            self._announce = False
            yield Notice("embedded_model", ABOUT)
        if self._own:
            async for item in self._own_answer(request, form):
                yield item
            return
        async with self._engine.turn():
            async for item in self._chat_answer(request):
                yield item

    # callgate's own model ----------------------------------------------------------------------------------------------

    async def _own_answer(self, request: ModelRequest, form: JsonObject | None) -> AsyncGenerator[JsonObject | Notice, None]:
        plan = await self._plan(request)
        for notice in plan.notices:
            yield notice
        if (known := self._known(plan, request, form)) is not None:
            yield say([known], finish_reason="STOP", model=self._name)
            return
        answer = _Answer()
        async with self._engine.turn():
            answer.ends_at = time.monotonic() + ANSWER_S_MAX
            try:
                async for item in self._made(request, plan, form, answer):
                    yield item
            except TimeoutError:
                yield Notice("answer_timed_out", f"The answer was stopped after {ANSWER_S_MAX:.0f} s.", "warning")
                sentence = f" ... {TOO_SLOW}" if answer.reader.text else TOO_SLOW
                yield say([text_part(sentence)], finish_reason="STOP", usage=answer.usage, model=self._name)

    async def _made(
        self, request: ModelRequest, plan: _Plan, form: JsonObject | None, answer: _Answer
    ) -> AsyncGenerator[JsonObject | Notice, None]:
        """The chunks of an answer: calls or a question, decoded choice by choice, or prose."""
        texts = plan.texts if form is None else plan.texts[-1:]
        if plan.tools:
            async with asyncio.timeout_at(on_loop(answer.ends_at)):
                await self._engine.begin_with(_system_turn(plan.tools, request))
        decoded = await self._decoded(plan, texts, form, answer)
        if decoded is not None and (decoded.calls or decoded.missing or decoded.is_declined):
            for item in self._decided(decoded, answer):
                yield item
            return
        if self._is_free(plan, form) and (told := told_result(request.contents, plan.tools)) is not None:
            yield say([text_part(told)], finish_reason="STOP", usage=answer.usage, model=self._name)
            return
        for number, text in enumerate(texts):
            if number:
                yield say([text_part("\n")])
            body = self._body(request, plan, text, form, is_prose=decoded is not None)
            async for chunk in self._stream_prose("/v1/completions", body, answer, plan.tools):
                yield chunk
        for item in self._ended(answer, plan):
            yield item

    def _is_free(self, plan: _Plan, form: JsonObject | None) -> bool:
        """True if the model may answer as it likes."""
        return form is None and self._ask and plan.tool_choice in ("auto", "validated")

    def _known(self, plan: _Plan, request: ModelRequest, form: JsonObject | None) -> Part | None:
        """The part that follows from the tools alone: an answer to the user, or the next try of a call."""
        if not self._is_free(plan, form) or not request.contents:
            return None
        said = scope_answer(plan.spoken, plan.tools) if starts_exchange(request.contents[-1]) else None
        again = next_try(request.contents, plan.tools)
        return text_part(said) if said is not None else call_part(again) if again is not None else None

    async def _decoded(self, plan: _Plan, texts: Sequence[str], form: JsonObject | None, answer: _Answer) -> Decoded | None:
        """The calls of an answer, copied from what was said; None where none can be made or none are wanted."""
        if form is not None or not self._grammar or not plan.tools or plan.tool_choice == "none" or len(texts) > 1:
            return None

        async def ask(prompt: str, *, count: int = 1, grammar: str | None = None) -> Step:
            async with asyncio.timeout_at(on_loop(answer.ends_at)):
                return answer.count(await self._engine.step(prompt, count=count, grammar=grammar))

        named = [tool for tool in plan.tools if tool.name == plan.tool_choice]
        must_call = bool(named) or plan.tool_choice == "required"
        may_ask = self._ask and not must_call
        decoder = Decoder(ask, named or plan.tools, plan.mentions, may_ask=may_ask, is_first=plan.is_first)
        decoded = await decoder.decode(texts[0], must_call=must_call)
        logger.debug("decoded: %s", decoder.trace)
        return decoded if must_call else with_effects_checked(decoded, plan.tools, plan.spoken)

    def _decided(self, decoded: Decoded, answer: _Answer) -> list[JsonObject | Notice]:
        """The last chunk, with the calls, or with a question for what is missing and a notice of it."""
        items: list[JsonObject | Notice] = []
        if decoded.tool is not None and not decoded.calls:
            missing = ", ".join(map(repr, decoded.missing))
            held = f"A call of {decoded.tool.name!r} was held back: the conversation does not give {missing}."
            items.append(Notice("asked_instead", held))
            parts = [text_part(question(decoded.tool, decoded.missing))]
        elif decoded.is_declined:
            parts = [text_part(decoded.why or DECLINED)]
        else:
            parts = [call_part(FunctionCall(name=name, args=args)) for name, args in decoded.calls]
        return [*items, say(parts, finish_reason="STOP", usage=answer.usage, model=self._name)]

    async def _stream_prose(
        self, path: str, body: Mapping[str, Any], answer: _Answer, tools: Sequence[ToolDefinition]
    ) -> AsyncGenerator[JsonObject, None]:
        """The prose of one answer as it is made; what else came of it is kept in `answer`."""
        answer.reader = reader = ReplyReader([tool.name for tool in tools])
        logger.debug("request: %s %s", path, body)
        answer.usage = answer.usage if answer.is_counted else Usage()
        async for event in until(self._engine.stream(path, body), answer.ends_at):
            if usage := usage_of(event):
                answer.usage, answer.is_counted = answer.usage + usage, True
            for choice in event.get("choices", ()):
                answer.reason = choice.get("finish_reason") or answer.reason
                delta = cast("dict[str, Any]", choice.get("delta") or {})
                if shown := reader.feed(choice.get("text") or delta.get("content") or ""):
                    yield say([text_part(shown)])
        if rest := DECLINED if reader.is_imitation else reader.rest():
            yield say([text_part(rest)])

    def _ended(self, answer: _Answer, plan: _Plan) -> list[JsonObject | Notice]:
        """The last chunk, with the calls, and a notice where a question stands in place of them."""
        read = answer.reader.read()
        finish = "MAX_TOKENS" if answer.reason == "length" else "MALFORMED_FUNCTION_CALL" if read.problem else "STOP"
        items = self._calls(read.calls, plan) if finish == "STOP" else []
        given = [item for item in items if not isinstance(item, Notice)]
        last = say(given, finish_reason=finish, usage=answer.usage, model=self._name)
        return [*(item for item in items if isinstance(item, Notice)), last]

    def _body(
        self, request: ModelRequest, plan: _Plan, text: str, form: JsonObject | None, *, is_prose: bool
    ) -> dict[str, Any]:
        body = {
            "prompt": text,
            "temperature": 0,
            "cache_prompt": True,
            "stream": True,
            "return_progress": True,
            "stream_options": {"include_usage": True},
            **{theirs: value for ours, theirs in _SETTINGS.items() if (value := request.settings.get(ours)) is not None},
            "stop": [prompt.STOP, *(request.settings.get("stop_sequences") or ())],
            "max_tokens": _answer_tokens(request.settings, self._context - plan.tokens),
        }
        if form is not None:
            body["grammar"] = answer_grammar(form, words=spellings(plan.known))
        elif self._grammar:
            choice = "none" if is_prose else plan.tool_choice
            body["grammar"] = grammar_of(plan.tools, tool_choice=choice, words=spellings(plan.said))
        return body

    def _calls(self, calls: Sequence[tuple[str, dict[str, Any]]], plan: _Plan) -> list[JsonObject | Notice]:
        """The calls as parts; or, where a required argument came from nowhere, a question and a notice."""
        tools, notices = {tool.name: tool for tool in plan.tools}, list[Notice]()
        for name, args in calls if self._ask and plan.tool_choice in ("auto", "validated") else ():
            missing = made_up(args, tools[name], plan.known) if name in tools else []
            for key in list(missing):
                meant = respelled(args[key], plan.spoken)
                if meant is not None:
                    notices.append(Notice("respelled", f"{key!r} of {name!r}: {args[key]!r} was taken for {meant!r}."))
                    args[key] = meant
                    missing.remove(key)
            if missing:
                held = f"A call of {name!r} was held back: the conversation does not give {', '.join(map(repr, missing))}."
                return [Notice("asked_instead", held), text_part(question(tools[name], missing))]
        return [*notices, *(call_part(FunctionCall(name=name, args=args)) for name, args in calls)]

    async def _plan(self, request: ModelRequest) -> _Plan:
        """The prompt: the tools and turns that fit, and notices of what does not."""
        contents = request.contents
        shown, notices = await self._shown_tools(_as_declared(request), contents)
        system = _system_turn(shown, request)
        turns = prompt.turns_of(contents, result_chars_max=RESULT_CHARS_MAX)
        sizes = prompt.Sizes(await self._size(system), tuple([await self._size(turn) for turn in turns]))
        room = self._context - _answer_tokens(request.settings, self._context // 4) - 8
        try:
            fits = prompt.fitted(contents, sizes, room=room)
        except prompt.PromptTooLongError as error:
            raise LimitExceededError(f"the prompt is too long for {self._name}: {error}", is_of_request=True) from error
        if fits.start:
            message = f"The first {fits.start} messages were left out: the model has room for {self._context} tokens."
            notices.append(Notice("history_trimmed", message, "warning"))
        pieces = prompt.one_by_one(contents) if request.tool_choice in ("auto", "validated", "none") else [contents]
        choice = "none" if len(pieces) > 1 else _declared_name(request, request.tool_choice)
        since = max((index for index, content in enumerate(contents) if starts_exchange(content)), default=0)
        return _Plan(
            texts=[
                "".join([system, *prompt.turns_of(piece, result_chars_max=RESULT_CHARS_MAX)[fits.start :], prompt.OPEN])
                for piece in pieces
            ],
            tokens=fits.tokens,
            tools=shown,
            tool_choice=choice,
            said="\n".join(turns[since:]),
            known="\n".join([request.system or "", *turns[fits.start :]]),
            spoken=prompt.words_since(contents),
            is_first=sum(map(starts_exchange, contents)) == 1,
            mentions=mentions_of(contents, request.system or "", today=datetime.now().astimezone().date()),
            notices=notices,
        )

    async def _shown_tools(
        self, tools: Sequence[ToolDefinition], contents: Sequence[Content]
    ) -> tuple[list[ToolDefinition], list[Notice]]:
        sizes = {tool.name: await self._size(prompt.tool_text(tool)) + 1 for tool in tools}
        if sum(sizes.values()) <= TOOL_TOKENS_MAX:
            return list(tools), []
        left = TOOL_TOKENS_MAX

        def fits(tool: ToolDefinition) -> bool:
            nonlocal left
            if sizes[tool.name] > left:
                return False
            left -= sizes[tool.name]
            return True

        shown = prompt.chosen_tools(tools, prompt.words_since(contents), fits=fits)
        room = f"{self._name} has room for {len(shown)} of {len(tools)} tools"
        message = f"{room}: those nearest to the newest message by their words, then the first declared."
        return shown, [Notice("tools_left_out", message, "warning")]

    async def _size(self, text: str) -> int:
        known = self._counted.get(text)
        if known is None:
            if len(self._counted) >= 1_000:
                self._counted.clear()
            known = self._counted[text] = await self._engine.tokens(text)
        return known

    # Any other model ---------------------------------------------------------------------------------------------------

    async def _chat_answer(self, request: ModelRequest) -> AsyncGenerator[JsonObject | Notice, None]:
        body: dict[str, Any] = {
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": _answer_tokens(request.settings, self._context // 2, usual=2_048),
            **{theirs: value for ours, theirs in _SETTINGS.items() if (value := request.settings.get(ours)) is not None},
        }
        if request.definitions and not await self._knows_tools():
            async for item in self._prompted_answer(request, body):
                yield item
            return
        reader, usage = ChatReader(), None
        async for event in self._engine.stream("/v1/chat/completions", {**body, **chat_body(request)}):
            usage = usage_of(event) or usage
            for part in reader.feed(event):
                yield say([part])
        made, finish = reader.close()
        yield say(made, finish_reason=finish, usage=usage, model=self._name)

    async def _knows_tools(self) -> bool:
        """True if the model's own chat template has a form for tools and calls."""
        if self._template_has_tools is None:
            capabilities: Any = (await self._engine.properties()).get("chat_template_caps") or {}
            self._template_has_tools = bool(capabilities.get("supports_tools") and capabilities.get("supports_tool_calls"))
        return self._template_has_tools

    async def _prompted_answer(
        self, request: ModelRequest, body: Mapping[str, Any]
    ) -> AsyncGenerator[JsonObject | Notice, None]:
        """Declare tools as text for a model without function calling, and hold it to calls or prose by the grammar."""
        tools = _as_declared(request)
        said = prompt.messages_of(request.contents, result_chars_max=RESULT_CHARS_MAX)
        known = "\n".join(text for _, text in said)
        choice = _declared_name(request, request.tool_choice)
        plan = _Plan(tools=tools, tool_choice=choice, said=known, known=known, spoken=prompt.words_since(request.contents))
        messages = [("system", prompt.system_text(tools, extra=request.system or "")), *said]
        body = {**body, "messages": [{"role": role, "content": text} for role, text in messages]}
        body["grammar"] = grammar_of(tools, tool_choice=choice, words=spellings(known))
        async for chunk in self._stream_prose("/v1/chat/completions", body, answer := _Answer(), tools):
            yield chunk
        for item in self._ended(answer, plan):
            yield item


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A request, ready to be sent."""

    tools: list[ToolDefinition]
    tool_choice: str
    texts: list[str] = field(default_factory=list[str])
    """The prompt; or, where several results came back, one for each, to be answered one by one."""
    tokens: int = 0
    said: str
    """The user's latest message and the results since: the source of arguments."""
    known: str
    """The whole text of the conversation."""
    spoken: str = ""
    """The newest words of the user."""
    is_first: bool = True
    """True if the user has spoken once."""
    mentions: Mentions = field(default_factory=Mentions)
    """The values of the conversation."""
    notices: list[Notice] = field(default_factory=list[Notice])


@dataclass(slots=True)
class _Answer:
    """The outcome of an answer beside its prose."""

    reader: ReplyReader = field(default_factory=ReplyReader)
    usage: Usage = field(default_factory=Usage)
    is_counted: bool = False
    """True once llama.cpp has counted the tokens of a whole answer."""
    reason: str | None = None
    ends_at: float = math.inf
    """The time on the monotonic clock at which the answer is stopped."""

    def count(self, step: Step) -> Step:
        """Count the tokens of a step: its prompt, once, and what it was asked to write."""
        usage = self.usage if self.usage.input_tokens else Usage(
            input_tokens=step.prompt_tokens, cached_tokens=step.cached_tokens, total_tokens=step.prompt_tokens
        )  # fmt: skip
        self.usage = usage + Usage(output_tokens=step.output_tokens, total_tokens=step.output_tokens)
        return step


def _as_declared(request: ModelRequest) -> list[ToolDefinition]:
    """The tools under the names that the model knows them by."""
    return [replace(tool, name=_declared_name(request, tool.name)) for tool in request.definitions]


def _declared_name(request: ModelRequest, name: str) -> str:
    return next((declared for declared, own in request.declaration.names.items() if own == name), name)


def _system_turn(tools: Sequence[ToolDefinition], request: ModelRequest) -> str:
    return prompt.turn_text("system", prompt.system_text(tools, extra=request.system or ""))


def _answer_tokens(settings: Mapping[str, Any], room: int, *, usual: int = ANSWER_TOKENS) -> int:
    asked = settings.get("max_output_tokens")
    return max(min(asked if isinstance(asked, int) and asked > 0 else usual, room), 1)
