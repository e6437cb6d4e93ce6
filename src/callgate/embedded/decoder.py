"""Decoding of one answer: first whether to call at all, then a call, choice by choice, out of what was said.

Prompts go to the model through an injected function, one step at a time, and the likeliest continuations of one token come
back. Everything that has only one continuation (names of tools and parameters after their first letters, punctuation, the
rest of a copied value) is written without asking; where several are possible the model's favourite among them is taken.
A value that nobody said cannot be written: if the model would rather write something else, a required argument is reported
as missing and an optional one is left out. This file knows nothing of llama.cpp or the runtime.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from callgate.embedded.automaton import Choices, State
from callgate.embedded.candidates import (
    Candidates,
    candidates_of,
    is_complete,
    is_given,
    literal_lists,
    mentioned_choices,
    number_lists,
)
from callgate.embedded.gbnf import class_char
from callgate.embedded.grammar import CALLS_MAX, NothingOfferedError, value_grammar
from callgate.embedded.mentions import Mentions
from callgate.embedded.numbers import UNITS
from callgate.embedded.prompt import CALL
from callgate.embedded.scope import is_question, is_statement
from callgate.embedded.slots import Slot, ToolSlots, slot_of, slots_of, topic_words
from callgate.embedded.vocabulary import ENGLISH
from callgate.types import ToolDefinition

__all__ = ["Decoded", "Decoder", "Step", "Thresholds", "sane_text"]

_TYPED = frozenset({"date", "time", "date-time", "email", "url", "phone"})
"""Kinds that are recognised by their form: what was said of this kind is meant for the slot."""
ITEMS_MAX = 32
"""Items of a list that are copied."""
PIECE_CHARS_MAX = 60
"""Characters of a piece of a message that is offered inside a nested value."""
PIECES_MAX = 600
VALUE_TOKENS_MAX = 160
"""Tokens of one composed or nested value."""


@dataclass(frozen=True, slots=True)
class Step:
    """A continuation by the model: its text, and the likeliest first tokens with their probabilities."""

    text: str
    tokens: Sequence[tuple[bytes, float]]
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class Ask(Protocol):
    """A request to the model: continue a prompt by at most `count` tokens, within a grammar if one is given."""

    def __call__(self, prompt: str, *, count: int = 1, grammar: str | None = None) -> Awaitable[Step]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Probabilities at which a decision falls, tuned on `benchmarks/data/dev_prompts.json`."""

    ask: float = 0.3
    """Least probability of a call at the beginning of an answer for a question about a missing argument."""
    call: float = 0.6
    """The same for a call."""
    strange: float = 0.95
    """The same where the tool's description has no word in common with the request."""
    report: float = 0.85
    """The same for a statement, which tells what happened and leaves out what to do, if every value is clear."""
    clear: float = 0.9
    """Least probability of the first choice of each value for that."""
    more: float = 0.5
    """Least probability of one more call."""
    required: float = 0.2
    """Least probability of all candidates of a required argument together; below it the argument is missing."""
    optional: float = 0.4
    """The same of an optional argument; below it the argument is left out."""
    choice: float = 0.5
    """Least probability of a required choice that nobody named."""
    optional_choice: float = 0.9
    """The same of an optional choice."""
    copied: float = 0.3
    """Least probability of copying on; below it text is composed, where that is allowed."""


@dataclass(slots=True)
class Decoded:
    """The outcome: calls, or the tool whose arguments are missing, or neither: the answer is prose."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    tool: ToolDefinition | None = None
    missing: list[str] = field(default_factory=list[str])
    is_declined: bool = False
    """True if a call came to mind that does not fit well enough."""
    why: str = ""
    """The sentence to decline with, if there is a better one than the usual."""
    chance: float = 1.0
    """The probability of a call at the beginning."""
    trace: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _Walk:
    text: str
    mass: float
    """The probability of all that was possible together, at the first choice."""
    best: float
    """The probability of the first choice taken."""
    state: State


class _MissingError(Exception):
    """A required argument has no value."""

    def __init__(self, owner: ToolSlots, names: list[str]) -> None:
        super().__init__(names)
        self.owner = owner
        self.names = names


class Decoder:
    """A decoder for the calls of one answer."""

    def __init__(
        self,
        ask: Ask,
        tools: Sequence[ToolDefinition],
        mentions: Mentions,
        *,
        thresholds: Thresholds | None = None,
        may_ask: bool = True,
        is_first: bool = True,
    ) -> None:
        self._ask = ask
        self._owners = {tool.name: slots_of(tool) for tool in tools}
        self._mentions = mentions
        self._limits = thresholds or Thresholds()
        self._may_ask = may_ask
        self._is_first = is_first
        """True for the first message of a conversation: later ones may leave out what they are about."""
        self._made: list[tuple[str, dict[str, Any]]] = []
        """The calls so far."""
        self._clarity = 1.0
        """The least probability of the first choice of a value of the newest call."""
        self.trace: list[str] = []

    async def decode(self, prompt: str, *, must_call: bool = False) -> Decoded:
        """Decode the calls that answer a prompt; none where the answer is prose."""
        made = Decoded(trace=self.trace)
        if not must_call:
            made.chance = self._chance(await self._ask(prompt), CALL)
            self.trace.append(f"call {made.chance:.3f}")
            if made.chance < self._limits.ask:
                return made
        text = prompt
        while len(made.calls) < CALLS_MAX:
            try:
                text, name, args = await self._call(f"{text}{CALL}")
            except _MissingError as error:
                is_unlikely = self._is_strange(error.owner) and made.chance < self._limits.strange
                is_asked = is_question(self._message) and not error.owner.is_query and self._may_ask
                made.is_declined = not made.calls and (is_unlikely or is_asked)
                if not made.calls and not made.is_declined:
                    made.tool, made.missing = error.owner.tool, error.names
                break
            least = self._least(self._owners[name], is_call=not self._is_by_rule(self._owners[name]))
            if least == self._limits.strange and self._clarity >= self._limits.clear and is_statement(self._message):
                least = self._limits.report
            if not must_call and not made.calls and made.chance < least:
                made.is_declined = self._is_strange(self._owners[name])
                made.calls.clear()
                break
            if (name, args) in made.calls:
                break
            made.calls.append((name, args))
            self._made = made.calls
            more = self._chance(await self._ask(text), f"\n{CALL}")
            self.trace.append(f"more {more:.3f}")
            if more < self._limits.more:
                break
            text += "\n"
        return made

    def _least(self, owner: ToolSlots, *, is_call: bool) -> float:
        """The probability that a call needs, or a question about one: more for a tool that the request has no word of."""
        if self._is_strange(owner):
            return self._limits.strange
        return self._limits.call if is_call else self._limits.ask

    def _is_by_rule(self, owner: ToolSlots) -> bool:
        """True if a rule found a value for the tool, such as a sum: a sign that it is meant."""
        return any(self._candidates(slot, owner, {}).is_sure for slot in owner.required)

    def _is_strange(self, owner: ToolSlots) -> bool:
        """True if a first message has no word in common with a tool's description."""
        if not self._is_first or not self._mentions.messages:
            return False
        said = self._message
        # Descriptions are in English, most of them: other languages have no word in common with them.
        is_english = any(word in ENGLISH for word in said.casefold().split())
        topic = topic_words(said)
        return is_english and bool(topic) and not topic & owner.about and not self._has_its_measure(owner)

    @property
    def _message(self) -> str:
        """The first message, while it is the only one."""
        return self._mentions.messages[0].text if self._is_first and self._mentions.messages else ""

    @property
    def _is_further(self) -> bool:
        """True once the answer has a call."""
        return bool(self._made)

    def _has_its_measure(self, owner: ToolSlots) -> bool:
        """True if the message has a weight, a length or the like and the tool takes one; all tools have money and time."""
        measured = {UNITS[number.unit][0] for number in self._mentions.messages[0].numbers if number.unit}
        return bool(measured & {slot.dimension for slot in owner.slots} - {"money", "time", "percent"})

    # One call --------------------------------------------------------------------------------------------------------

    async def _call(self, text: str) -> tuple[str, str, dict[str, Any]]:
        openings: dict[str, tuple[ToolSlots, Slot | None]] = {}
        for name, owner in self._owners.items():
            for slot in self._following(owner, -1, {}):
                openings[f" {name}({_key(slot, first=True)}"] = (owner, slot)
        walk = await self._walk(text, Choices(openings, lead=""))
        owner, slot = openings[walk.text]
        self.trace.append(f"tool {owner.tool.name} {walk.mass:.3f} {walk.best:.3f}")
        missing = [
            one.name
            for one in owner.required
            if self._may_ask and not self._is_possible(one, self._candidates(one, owner, {}))
        ]
        if missing:
            raise _MissingError(owner, missing)
        text, args, self._clarity = text + walk.text, dict[str, Any](), walk.best
        left_out: set[str] = set()
        while slot is not None:
            place = owner.slots.index(slot)
            before = text[: text.rindex(json.dumps(slot.name, ensure_ascii=False))]
            endings = {_key(other): other for other in self._following(owner, place, {**args, slot.name: None}, left_out)}
            found = await self._value(text, slot, owner, args, list(endings))
            if found is None and slot.is_required and not self._may_ask:
                found = await self._by_grammar(text, slot, owner, list(endings))
            if found is None and slot.is_required:
                raise _MissingError(owner, [slot.name])
            if found is None:
                # An optional argument for which nothing was said: back to before its name, and without it.
                left_out.add(slot.name)
                text, slot = await self._another(before, owner, place, args, left_out)
                continue
            text, args[slot.name], ending = found
            slot = endings[ending]
        return text, owner.tool.name, args

    async def _another(
        self, before: str, owner: ToolSlots, place: int, args: Mapping[str, Any], left_out: set[str]
    ) -> tuple[str, Slot | None]:
        text = before.removesuffix("{").removesuffix(", ")
        is_first = not args
        options = {_key(slot, first=is_first): slot for slot in self._following(owner, place, args, left_out)}
        walk = await self._walk(text, Choices(options, lead=""))
        return text + walk.text, options[walk.text]

    def _following(
        self, owner: ToolSlots, place: int, args: Mapping[str, Any], left_out: set[str] | None = None
    ) -> list[Slot | None]:
        """The slots that may come after a place: the optional ones up to the next required one; None is the end."""
        found: list[Slot | None] = []
        for slot in owner.slots[place + 1 :]:
            if slot.is_required or (place >= 0 and slot.name not in args and is_given(slot, owner, self._mentions)):
                return [*found, slot]
            if slot.name not in (left_out or ()) and self._is_possible(slot, self._candidates(slot, owner, args)):
                found.append(slot)
        return [*found, None]

    def _candidates(self, slot: Slot, owner: ToolSlots, args: Mapping[str, Any]) -> Candidates:
        used = [value for name, value in args.items() if isinstance(value, (str, int, float)) and name != slot.name]
        item = slot.item if slot.item else slot
        spent = self._spent(slot, owner)
        return candidates_of(item, owner, self._mentions, used=used, spent=spent, is_further=self._is_further)

    def _spent(self, slot: Slot, owner: ToolSlots) -> list[str]:
        """Codes that earlier calls have in this place and that were said once, while another one is still unused."""
        earlier = [args for name, args in self._made if name == owner.tool.name]
        if not earlier or slot.kind not in ("text", "identifier"):
            return []
        message = self._mentions.messages[0]
        codes = [word.text for word in message.words if word.is_code]
        written = {value for args in earlier for value in args.values() if isinstance(value, str)}
        if all(code in written for code in codes):
            return []
        return [value for args in earlier if isinstance(value := args.get(slot.name), str) and codes.count(value) == 1]

    def _is_possible(self, slot: Slot, candidates: Candidates) -> bool:
        return bool(candidates) or slot.kind == "object" or (slot.item is not None and slot.item.kind in ("object", "array"))

    # One value -------------------------------------------------------------------------------------------------------

    async def _value(
        self, text: str, slot: Slot, owner: ToolSlots, args: Mapping[str, Any], endings: Sequence[str]
    ) -> tuple[str, Any, str] | None:
        """The text after a value, the value and the ending; None if there is no value that the model would take."""
        candidates = self._candidates(slot, owner, args)
        is_nested = slot.kind == "object" or (slot.item is not None and slot.item.kind in ("object", "array"))
        if not candidates and not is_nested and self._may_ask:
            return None
        if is_nested and (listed := literal_lists(slot, self._mentions)):
            walk = await self._walk(text, Choices(listed, endings=endings))
            return _ended(text, walk.text, endings)
        if not candidates or is_nested:
            return await self._by_grammar(text, slot, owner, endings)
        if slot.item is not None:
            return await self._list(text, slot, candidates, endings, args)
        # A further call has another of the choices than the clause of a value that it shares with the first.
        used = [value for value in args.values() if isinstance(value, str) and not self._is_further]
        named = mentioned_choices(slot, self._mentions, used=used) if slot.kind == "choice" else []
        values = [json.dumps(choice, ensure_ascii=False) for choice in named] if len(named) == 1 else candidates.values
        choices = Choices(values, texts=candidates.texts, endings=endings)
        least = self._limits.copied if candidates.is_open else 0.0
        walk = await self._walk(text, choices, probe=True, least=least)
        self.trace.append(f"{slot.name} {walk.text!r} {walk.mass:.3f} {walk.best:.3f}")
        if walk.state.is_end:
            sure = candidates.is_sure or bool(named) or is_given(slot, owner, self._mentions)
            sure = sure or is_complete(slot, owner, self._mentions)
            if not sure and self._is_doubtful(slot, walk):
                return None
            self._clarity = min(self._clarity, walk.best) if slot.is_required else self._clarity
            return _ended(text, walk.text, endings)
        return await self._composed(text, walk.text, endings) if candidates.is_open else None

    def _is_doubtful(self, slot: Slot, walk: _Walk) -> bool:
        if not self._may_ask or slot.kind in _TYPED:
            return False
        if slot.kind in ("choice", "boolean"):
            return walk.best < (self._limits.choice if slot.is_required else self._limits.optional_choice)
        return walk.mass < (self._limits.required if slot.is_required else self._limits.optional)

    async def _list(
        self, text: str, slot: Slot, candidates: Candidates, endings: Sequence[str], args: Mapping[str, Any]
    ) -> tuple[str, Any, str] | None:
        """A list: one that was said as a whole, or else item by item."""
        listed = number_lists(slot, self._mentions, used=list(args.values()))
        if not listed:
            return await self._items(text, slot, candidates, endings)
        walk = await self._walk(text, Choices(listed, endings=endings), probe=not slot.is_required)
        self.trace.append(f"{slot.name} {walk.text!r} {walk.mass:.3f}")
        if not slot.is_required and walk.mass < self._limits.optional:
            return None
        return _ended(text, walk.text, endings)

    async def _items(
        self, text: str, slot: Slot, candidates: Candidates, endings: Sequence[str]
    ) -> tuple[str, Any, str] | None:
        closing = [f"]{ending}" for ending in endings]
        start, items, lead = text, list[str](), " ["
        while True:
            values = [value for value in candidates.values if value not in items]
            has_more = len(values) > 1 or bool(candidates.texts)
            more = [","] if has_more and len(items) < ITEMS_MAX - 1 else []
            choices = Choices(values, texts=candidates.texts, endings=[*more, *closing], lead=lead)
            walk = await self._walk(text, choices, probe=not items)
            self.trace.append(f"{slot.name}[] {walk.text!r} {walk.mass:.3f}")
            item = cast("Slot", slot.item)
            is_number = item.kind == "number" and slot.is_required
            if not items and not is_number and self._is_doubtful(item, walk):
                return None
            text += walk.text
            if not walk.text.endswith(","):
                ended = _ended(start, text[len(start) :], endings)
                return ended
            items.append(walk.text[len(lead) : -1])
            lead = " "

    async def _composed(self, text: str, begun: str, endings: Sequence[str]) -> tuple[str, Any, str] | None:
        """Text that the model writes itself, from what it has copied so far on."""
        grammar = value_grammar({"type": "string"}, endings=endings, begun=begun.startswith(' "'))
        prefix = begun if begun.startswith(' "') else ""
        step = await self._ask(text + prefix, count=VALUE_TOKENS_MAX, grammar=grammar)
        whole = _ended(text, prefix + step.text, endings)
        written = whole[1] if whole is not None else _unfinished(prefix + step.text)
        value = sane_text(written, is_whole=whole is not None)
        if whole is not None and value == written:
            return whole
        self.trace.append(f"cut {written!r}")
        if not value:
            return None
        walk = await self._walk(text, Choices([json.dumps(value, ensure_ascii=False)], endings=endings))
        return _ended(text, walk.text, endings)

    async def _by_grammar(
        self, text: str, slot: Slot, owner: ToolSlots, endings: Sequence[str]
    ) -> tuple[str, Any, str] | None:
        """A nested value of what was said; any value of the type where one must be written and nothing was said."""

        def offered(name: str, schema: Mapping[str, Any]) -> list[str] | None:
            found = candidates_of(slot_of(name, schema, schema), owner, self._mentions)
            pieces = [f'"{piece}"' for one in found.texts for piece in one.pieces(chars_max=PIECE_CHARS_MAX)]
            return None if found.is_open else list(dict.fromkeys([*found.values, *pieces]))[:PIECES_MAX]

        try:
            grammar = value_grammar(slot.schema, endings=endings, name=slot.name, offered=offered)
        except NothingOfferedError:
            if self._may_ask:
                return None
            grammar = value_grammar(slot.schema, endings=endings)
        step = await self._ask(text, count=VALUE_TOKENS_MAX, grammar=grammar)
        self.trace.append(f"{slot.name} by grammar {step.text!r}")
        return _ended(text, step.text, endings)

    # Steps -----------------------------------------------------------------------------------------------------------

    async def _walk(self, text: str, choices: Choices, *, probe: bool = False, least: float = 0.0) -> _Walk:
        """Follow the model's favourites to the end of the choices, or to where it would rather leave them.

        With `probe` it is asked once even where only one value is possible.
        """
        state, taken, first, best = choices.start(), "", None, 1.0
        while not state.is_end:
            moves = state.moves()
            if not moves:
                break
            is_value = len(taken) >= len(choices.lead) and (set(moves) != {'"'} or '"' in taken)
            if len(moves) == 1 and not (probe and is_value and first is None):
                char = next(iter(moves))
                stepped = state.step(char)
                assert stepped is not None
                taken, state = taken + char, stepped[1]
                continue
            step, mass, best_here = await self._step(text, taken, state, choices)
            if first is None:
                first, best = mass, best_here
            if mass < least and not _is_ending(state):
                ended = state.step('"') if len(taken) > len(choices.lead) + 1 and '"' in moves else None
                if ended is None:
                    return _Walk(taken, first, best, state)
                step, least = (f'{taken}"', ended[1]), 0.0  # It has copied a whole value, and would go on by itself.
            taken, state = step
        return _Walk(taken, 1.0 if first is None else first, best, state)

    async def _step(self, text: str, taken: str, state: State, choices: Choices) -> tuple[tuple[str, State], float, float]:
        """The favourite among the possible continuations, and the probability of all of them together."""
        start, head = state, _whole_tokens(taken, state)
        if head != taken:
            start = _replayed(choices, head)
        possible = await self._possible(text + head, start)
        mass = sum(chance for chance, _ in possible)
        possible = [(chance, found) for chance, found in possible if len(head) + len(found[0]) > len(taken)]
        if not possible and head != taken:  # It goes no further than before: ask from there.
            head, possible = taken, await self._possible(text + taken, state)
        if not possible:
            allowed = "".join(map(class_char, state.moves()))
            forced = await self._ask(text + taken, grammar=f"root ::= [{allowed}] [^\\x00]*\n")
            possible = [(0.0, _as_far(state, forced.text))]
            head = taken
        chance, (more, after) = max(possible, key=lambda pair: pair[0])
        return (head + more, after), mass, chance

    async def _possible(self, text: str, state: State) -> list[tuple[float, tuple[str, State]]]:
        """The likeliest tokens that lead along the choices, each with its probability."""
        answer = await self._ask(text)
        tokens = answer.tokens
        if not tokens:  # Its favourite is a part of a character, of which llama.cpp tells nothing.
            letters = [char for char in state.moves() if not char.isascii()]
            tokens = [(letter.encode(), 1 / len(letters)) for letter in letters]
        return [(chance, found) for token, chance in tokens if (found := state.take(token)) is not None]

    def _chance(self, step: Step, wanted: str) -> float:
        return sum(chance for token, chance in step.tokens if token and wanted.encode().startswith(token))


_FOREIGN = re.compile(
    rf"""\s*['"]?[.,]?['"]?\s*[}}\])]*\s*(?:{re.escape(CALL)}|{re.escape(CALL.rstrip(":"))}|<\|im_)"""
    r"""|['"]?[.,]?\s*\}\)+\s*(?:assistant|user|system|tool|$)|['"]?\s*\}\)\s*\w*\s*\w+(?:: )?\w*\(\{?"""
)
"""Marks of the format of a conversation, which are never part of a value."""
_SENTENCE = re.compile(r"[.!?…](?=\s|$)")


def sane_text(text: str, *, is_whole: bool = True) -> str:
    """Composed text up to the first mark of the format; of text that broke off, the whole sentences."""
    for marked in _FOREIGN.finditer(text):
        closed = text[: marked.start()].count("{") >= text[: marked.end()].count("}") > 0
        if not closed or CALL in marked[0] or "<|" in marked[0]:  # Code may close what it has opened.
            return text[: marked.start()].rstrip()
    if is_whole:
        return text
    ends = [hit.end() for hit in _SENTENCE.finditer(text)]
    return text[: ends[-1]] if ends else ""


def _unfinished(written: str) -> str:
    """The text of a string whose end is missing."""
    begun = written.strip().removeprefix('"').rstrip("\\")
    try:
        return str(json.loads(f'"{begun}"'))
    except ValueError:
        return ""


def _whole_tokens(taken: str, state: State) -> str:
    """The text without an end that is one token with what follows: the space of a word, marks before further marks."""
    following = state.moves()
    if taken.endswith(" ") and any(char.isalpha() for char in following):
        return taken[:-1]
    if any(char.isalnum() or char.isspace() for char in following):
        return taken
    head = taken.rstrip("\"'.,;:!?()[]{}")
    return head if head.strip() else taken


def _replayed(choices: Choices, text: str) -> State:
    state = choices.start()
    for char in text:
        stepped = state.step(char)
        assert stepped is not None
        state = stepped[1]
    return state


def _as_far(state: State, text: str) -> tuple[str, State]:
    """The part of a text that leads along the choices: at least one character."""
    taken = ""
    for char in text:
        stepped = None if state.is_end else state.step(char)
        if stepped is None:
            break
        taken, state = taken + stepped[0], stepped[1]
    if not taken:
        char = next(iter(state.moves()))
        stepped = state.step(char)
        assert stepped is not None
        return char, stepped[1]
    return taken, state


def _is_ending(state: State) -> bool:
    return all(place.is_ending for place in state.places)


def _key(slot: Slot | None, *, first: bool = False) -> str:
    if slot is None:
        return "{})" if first else "})"
    return f"{'{' if first else ', '}{json.dumps(slot.name, ensure_ascii=False)}:"


def _ended(text: str, written: str, endings: Sequence[str]) -> tuple[str, Any, str] | None:
    ending = max((one for one in endings if written.endswith(one)), key=len, default=None)
    if ending is None:
        return None
    try:
        value = json.loads(written.removesuffix(ending))
    except ValueError:
        return None
    return text + written, value, ending
