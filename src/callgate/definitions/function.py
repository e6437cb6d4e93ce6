"""Python callables to tools: a definition for the model, and binding of checked JSON arguments.

`tool` marks a function and leaves it unchanged; `function_tool` makes the `FunctionTool` that an executor registers. This
file runs no tool, knows no model and no wire format, and does no I/O.
"""

from __future__ import annotations

import functools
import inspect
import logging
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar, Unpack, cast, get_args, overload

from callgate.definitions.docstrings import Docstring, docstring_from
from callgate.definitions.json_decoding import reader_of
from callgate.definitions.plain_types import PlainFields, plain_output_schema
from callgate.definitions.python_types import (
    FieldType,
    NotExpressibleError,
    accepts_none_of_it,
    adapter_for,
    default_as_json,
    fields_adapter,
    schema_of,
    sentences_of,
)
from callgate.definitions.signature import (
    ABSENT,
    Parameter,
    Signature,
    deps_types_of,
    is_async_callable,
    is_callable_object,
    layers,
    local_types,
    own_name,
    signature_from,
)
from callgate.definitions.typed_dicts import TypedDictConversion
from callgate.errors import JsonError, ToolNotDeclarableError
from callgate.schema.problems import shown
from callgate.strict_json import dump
from callgate.types import Media, ToolContext, ToolDefinition, ToolResult

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["ArgumentsInvalidError", "FunctionTool", "Isolation", "RunIn", "ToolOptions", "function_tool", "tool"]

_log = logging.getLogger("callgate.definitions")

F = TypeVar("F", bound=Callable[..., Any])

Isolation: TypeAlias = Literal["process"]
"""`process`: run in a worker process that can be killed at the deadline."""

RunIn: TypeAlias = Literal["thread", "loop"]
"""Thread in which a sync function runs: its own, or that of the event loop."""

_MARK = "__callgate_tool__"
_VARIADIC = {
    inspect.Parameter.VAR_POSITIONAL: "Further values, in order",
    inspect.Parameter.VAR_KEYWORD: "Further arguments by name",
}
"""Descriptions of `*args` and `**kwargs` that nobody has described: their names say nothing to a model."""
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class OptionWords(TypedDict, total=False):
    """The options of `tool` and `function_tool`."""

    name: str | None
    description: str | None
    timeout_s: float | None
    isolation: Isolation | None
    idempotent: bool | None
    read_only: bool | None
    sequential: bool | None
    run_in: RunIn | None
    touches: Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """The options of `@tool(...)`. None means unset."""

    name: str | None = None
    """The tool's name, where it should differ from the function's."""
    description: str | None = None
    """Replacement for the docstring's prose."""
    timeout_s: float | None = None
    isolation: Isolation | None = None
    idempotent: bool | None = None
    read_only: bool | None = None
    sequential: bool | None = None
    run_in: RunIn | None = None
    touches: Sequence[str] | None = None
    """Names of what the tool reads or changes, so that a cache keeps what others have read."""
    namespace: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)
    """Types local to the place of decoration, for annotations that are only text by then."""


class ArgumentsInvalidError(Exception):
    """The arguments fit the schema but not the function's own types. `problems` are sentences for the model."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@overload
def tool(
    fn: F,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | None = None,
    isolation: Isolation | None = None,
    idempotent: bool | None = None,
    read_only: bool | None = None,
    sequential: bool | None = None,
    run_in: RunIn | None = None,
    touches: Sequence[str] | None = None,
) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | None = None,
    isolation: Isolation | None = None,
    idempotent: bool | None = None,
    read_only: bool | None = None,
    sequential: bool | None = None,
    run_in: RunIn | None = None,
    touches: Sequence[str] | None = None,
) -> Callable[[F], F]: ...
def tool(  # noqa: PLR0913 - all options, so that editors and the reference show them
    fn: Any = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | None = None,
    isolation: Isolation | None = None,
    idempotent: bool | None = None,
    read_only: bool | None = None,
    sequential: bool | None = None,
    run_in: RunIn | None = None,
    touches: Sequence[str] | None = None,
    **unknown: Any,
) -> Any:
    """Mark a function as a tool: `@tool`, or `@tool(name=..., timeout_s=...)`.

    Returns the function itself, unchanged but for the mark. A callable that takes no attributes (a bound method, a
    builtin) is returned as a `functools.partial` that carries the mark.

    Args:
        fn: The function.
        name: The tool's name, where it should differ from the function's.
        description: Takes the place of the docstring's prose.
        timeout_s: The deadline of one call in seconds; `Limits.call_timeout_s` otherwise.
        isolation: `process` runs it in a worker process that is killed at the deadline.
        idempotent: Running it twice with the same arguments is the same as running it once.
        read_only: It changes nothing, so it needs no permission by default.
        sequential: Calls of one turn to this tool run one after another.
        run_in: `loop` runs a sync function on the event loop's thread, `thread` (the default) in one of its own.
        touches: What it reads and changes, for the result cache; see the field of `ToolDefinition`.
        unknown: Refused with a message that names the options.

    Raises:
        ToolNotDeclarableError: an option has a value that cannot work, or the object cannot be called.
    """
    options: dict[str, Any] = {
        "name": name, "description": description, "timeout_s": timeout_s, "isolation": isolation,
        "idempotent": idempotent, "read_only": read_only, "sequential": sequential, "run_in": run_in, "touches": touches,
        **unknown,
    }  # fmt: skip
    if fn is None:
        _options_from(options, "@tool(...)")  # a bad option is reported where it is written, not where it is used
        return functools.partial(tool, **options)
    where = f"@tool on {_described(fn)}"
    # The mark belongs on the inner function, where a class leaves it to be found.
    target: Any = cast("Any", fn).__func__ if isinstance(fn, (staticmethod, classmethod)) else fn
    _require_callable(target, where)
    marked = replace(_options_from(options, where), namespace=local_types(target))
    try:
        setattr(target, _MARK, marked)
    except (AttributeError, TypeError):
        fn = functools.partial(target)
        setattr(fn, _MARK, marked)
    return cast("Any", fn)


def function_tool(fn: Callable[..., Any], /, **options: Unpack[OptionWords]) -> FunctionTool:
    """Make a tool of any callable. Options given here take precedence over those of `@tool`.

    Raises:
        ToolNotDeclarableError: the callable has no name, or a parameter that JSON cannot fill.
    """
    where = f"function_tool of {_described(fn)}"
    marked = getattr(fn, _MARK, None)
    marked = marked if isinstance(marked, ToolOptions) else ToolOptions()
    given = {key: value for key, value in options.items() if value is not None}
    if isinstance(fn, staticmethod):
        fn = cast("Callable[..., Any]", fn.__func__)
    _require_callable(fn, where)
    said = {item.name: getattr(marked, item.name) for item in fields(ToolOptions) if item.name != "namespace"}
    return FunctionTool(fn, replace(_options_from({**said, **given}, where), namespace=marked.namespace))


class FunctionTool:
    """A callable with everything that is needed to declare it and to call it. Made by `function_tool`."""

    definition: ToolDefinition
    fn: Callable[..., Any]
    is_async: bool
    """True if calling `fn` returns a coroutine."""
    is_async_generator: bool
    """True if calling `fn` returns an async iterator."""
    takes_context: bool
    """True if `fn` takes a `ToolContext`."""
    deps_types: tuple[type, ...]
    """The classes of which `deps` must be one, if it takes a `ToolContext[Class]`."""
    run_in: RunIn
    isolation: Isolation | None

    def __init__(self, fn: Callable[..., Any], options: ToolOptions) -> None:
        name = options.name or own_name(fn)
        if not name:
            raise ToolNotDeclarableError(f"{_described(fn)} has no name of its own; give it one with tool(..., name='...')")
        self.fn = fn
        self.is_async = is_async_callable(fn)
        self.is_async_generator = is_async_callable(fn, inspect.isasyncgenfunction)
        self.run_in = options.run_in or "thread"
        self.isolation = options.isolation
        self._signature = signature_from(fn, tool_name=name, namespace=options.namespace)
        self._parameters = tuple(parameter for parameter in self._signature.parameters if not parameter.is_context)
        self.takes_context = len(self._parameters) < len(self._signature.parameters)
        contexts = (deps_types_of(parameter.type) for parameter in self._signature.parameters if parameter.is_context)
        self.deps_types = next(contexts, ())
        self._is_plain = not self.takes_context and all(parameter.kind in _BY_NAME for parameter in self._parameters)
        defaults = {each.name: each.default for each in self._parameters if each.default is not ABSENT}
        annotations = {each.name: each.type for each in self._parameters}
        is_simple = self._is_plain and not any(each.may_be_absent for each in self._parameters)
        self._plain = PlainFields.of(annotations, defaults) if is_simple else None
        self._types = None if self._plain is not None else _TypedArguments(name, self._parameters, self._signature)
        doc = docstring_from(_docstring(fn))
        self.definition = ToolDefinition(
            name=name,
            description=doc.prose if options.description is None else options.description,
            input_schema=self._input_schema(doc),
            output_schema=_output_schema(self._signature),
            read_only=bool(options.read_only),
            idempotent=bool(options.idempotent),
            sequential=bool(options.sequential),
            timeout_s=options.timeout_s,
            touches=tuple(options.touches or ()),
        )
        for parameter in self._parameters:
            if not parameter.is_annotated:
                _log.warning(
                    "tool %r: parameter %r has no annotation, so the model may send any value", name, parameter.name
                )

    def __repr__(self) -> str:
        return f"FunctionTool({self.definition.name!r}, {self.fn!r})"

    def check(self, args: Mapping[str, Any], *, is_json: bool = False) -> None:
        """Read JSON arguments as `bind` does, for nothing but its exceptions.

        Raises:
            ArgumentsInvalidError: the declared types refuse a value.
        """
        self._python_values(args, is_json=is_json)

    def bind(
        self, args: Mapping[str, Any], context: ToolContext | None, *, is_json: bool = False
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Bind checked JSON arguments for the call `fn(*positional, **keyword)`, with values of the function's own.

        An absent argument is not passed, so the function's own default applies. Exceptions of validators other than
        validation errors propagate: they are the tool's own code. `is_json` says that the arguments are known to be plain
        JSON, and need not be looked through for anything else.

        Raises:
            ArgumentsInvalidError: the declared types refuse a value.
        """
        values = self._python_values(args, are_own=True, is_json=is_json)
        if self._is_plain:
            return (), values
        extra: list[Any] = []
        positional: list[tuple[Parameter, Any]] = []
        keyword: dict[str, Any] = {}
        star = next((p for p in self._parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), None)
        if star is not None:
            extra = list(values.pop(star.name, ()))
        for parameter in self._signature.parameters:
            value: Any = values.get(parameter.name, ABSENT)
            if parameter.is_context and (context is not None or parameter.default is ABSENT):
                value = context
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                keyword |= values.get(parameter.name, {})
            elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY or (
                extra and parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
            ):
                positional.append((parameter, value))
            elif value is not ABSENT:
                keyword[parameter.name] = value
        while positional and not extra and positional[-1][1] is ABSENT:
            positional.pop()
        # A later positional value can only be reached past the earlier ones, so their defaults are passed as they are.
        heads = [parameter.default if value is ABSENT else value for parameter, value in positional]
        return (*heads, *extra), keyword

    def running_values(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The Python values that the function gets for the arguments, by the arguments' names.

        Raises:
            ArgumentsInvalidError: the declared types refuse a value.
        """
        values, keys = self._python_values(args), {} if self._types is None else self._types.keys
        return {keys.get(name, name): value for name, value in values.items()}

    def _python_values(self, args: Mapping[str, Any], *, are_own: bool = False, is_json: bool = False) -> dict[str, Any]:
        """The values of arguments; with `are_own` they share nothing with them that could be changed."""
        if self._plain is not None:
            values = self._plain.values(args, are_own=are_own, is_json=is_json)
            if values is not None:
                return values
            if self._types is None:  # Only pydantic's way of reading says what is wrong with a value.
                self._types = _TypedArguments(self.definition.name, self._parameters, self._signature)
        assert self._types is not None
        unknown = [key for key in args if key not in self.definition.input_schema["properties"]]
        if unknown:
            raise ArgumentsInvalidError(tuple(f"unknown argument {shown(key)}" for key in unknown[:10]))
        values = self._types.read(args)
        for parameter in self._parameters:
            absent = self._types.keys[parameter.name] not in args
            if absent and (parameter.default is not ABSENT or parameter.is_variadic):
                values.pop(parameter.name, None)
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                self._refuse_taken(parameter.name, values.get(parameter.name, {}))
        return values

    def _refuse_taken(self, name: str, extra: Iterable[str]) -> None:
        taken = [key for key in extra if key in self._signature.reserved]
        if taken:
            raise ArgumentsInvalidError(tuple(f"{name}: {shown(key)} is not a free name" for key in taken))

    def _input_schema(self, doc: Docstring) -> dict[str, Any]:
        typed = self._types
        schema = cast("PlainFields", self._plain).schema() if typed is None else schema_of(typed.adapter)
        properties: dict[str, Any] = schema.get("properties", {})
        needed: list[str] = schema.get("required", [])
        for parameter in self._parameters:
            key = parameter.name if typed is None else typed.keys[parameter.name]
            entry: dict[str, Any] = properties.get(key, {})
            said = None if typed is None else typed.fields[parameter.name].description
            usual = (
                f"{_VARIADIC[parameter.kind]}{'.' if key in needed else '; may be left out.'}"
                if parameter.is_variadic
                else ""
            )
            if description := said or doc.parameters.get(parameter.name) or usual:
                entry["description"] = description
            if parameter.default is not ABSENT:
                found, value = True, parameter.default
                if typed is not None:
                    found, value = default_as_json(typed.adapter, parameter.name, key, parameter.default)
                entry.pop("default", None)
                entry.update({"default": value} if found else {})
        result: dict[str, Any] = {"type": "object", "properties": properties}
        result |= {key: schema[key] for key in ("required", "$defs") if schema.get(key)}
        return result | {"additionalProperties": False}


class _TypedArguments:
    """The parameters of a function as pydantic reads them."""

    def __init__(self, tool_name: str, parameters: Sequence[Parameter], signature: Signature) -> None:
        self._signature = signature
        self.fields = _field_types(tool_name, parameters, TypedDictConversion(signature.namespace))
        self.keys = {parameter.name: self.fields[parameter.name].key(parameter.name) for parameter in parameters}
        required = [parameter.name for parameter in parameters if self._is_required(parameter)]
        self.adapter = _adapter(tool_name, self.fields, required, signature)
        self._read = reader_of(self.adapter)

    def read(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The Python values of JSON arguments.

        Raises:
            ArgumentsInvalidError: the declared types refuse a value.
        """
        from pydantic import ValidationError

        try:
            # Read as JSON, not as Python values: a strict model takes "2026-01-31" for a date from JSON only.
            return cast("dict[str, Any]", self._read(dump(dict(args))))
        except ValidationError as error:
            raise ArgumentsInvalidError(sentences_of(error, args)) from None
        except JsonError as error:
            raise ArgumentsInvalidError((str(error),)) from None

    def _is_required(self, parameter: Parameter) -> bool:
        if parameter.is_variadic:
            # `*args: *tuple[int, str]` and `**kwargs: Unpack[Options]` may need some; plain ones never do.
            return not accepts_none_of_it(self.fields[parameter.name], self._signature.namespace)
        if parameter.may_be_absent:
            return False
        return parameter.default is ABSENT and self.fields[parameter.name].is_required


def _field_types(name: str, parameters: Iterable[Parameter], conversion: TypedDictConversion) -> dict[str, FieldType]:
    found: dict[str, FieldType] = {}
    for parameter in parameters:
        try:
            found[parameter.name] = FieldType(parameter.type, conversion)
        except NotExpressibleError as error:
            raise _undeclarable(name, parameter.name, error) from None
    return found


def _adapter(name: str, types: Mapping[str, FieldType], required: list[str], signature: Signature) -> TypeAdapter[Any]:
    try:
        adapter = fields_adapter(types, required, signature.namespace)
        schema_of(adapter)
    except NotExpressibleError as whole:
        # pydantic does not say which field failed; check them one by one.
        for key, kind in types.items():
            try:
                schema_of(fields_adapter({key: kind}, [], signature.namespace))
            except NotExpressibleError as error:
                raise _undeclarable(name, key, error) from None
        raise ToolNotDeclarableError(f"tool {name!r} cannot be declared: {whole}; simplify its parameters") from None
    return adapter


def _undeclarable(name: str, parameter: str, reason: NotExpressibleError) -> ToolNotDeclarableError:
    return ToolNotDeclarableError(
        f"tool {name!r}: parameter {parameter!r} cannot be declared to a model: {reason}; annotate it with a type "
        "that JSON can carry, or bind it with functools.partial so that the model does not see it"
    )


def _output_schema(signature: Signature) -> dict[str, Any] | None:
    returns = signature.returns
    if returns in (ABSENT, None, type(None), Any) or _mentions(returns, (Media, ToolResult)):
        return None
    if (plain := plain_output_schema(returns)) is not None:
        return plain
    try:
        kind = FieldType(returns, TypedDictConversion(signature.namespace)).type
        return schema_of(adapter_for(kind, signature.namespace), mode="serialization") or None
    except NotExpressibleError as error:
        _log.debug("no output schema for %r: %s", returns, error)
        return None


def _mentions(annotation: Any, wanted: tuple[type, ...]) -> bool:
    return annotation in wanted or any(_mentions(arg, wanted) for arg in get_args(annotation))


def _docstring(fn: Any) -> str | None:
    """The docstring of the function that was written; failing that, of the method it overrides or of its object's class."""
    chain = list(layers(fn))
    if not isinstance(chain[-1], types.FunctionType):
        return inspect.getdoc(chain[-1])
    texts = [layer.__doc__ for layer in chain if isinstance(layer, types.FunctionType)]
    texts += [inspect.getdoc(layer) for layer in chain if isinstance(layer, types.MethodType)]
    texts += [type(layer).__doc__ for layer in chain if is_callable_object(layer)]
    return next((inspect.cleandoc(text) for text in texts if text), None)


def _options_from(words: Mapping[str, Any], where: str) -> ToolOptions:
    known = [item.name for item in fields(ToolOptions) if item.name != "namespace"]
    unknown = [word for word in words if word not in known]
    if unknown:
        raise ToolNotDeclarableError(f"{where}: there is no option {unknown[0]!r}; the options are {', '.join(known)}")
    options = ToolOptions(**words)
    name, timeout_s = cast("Any", options.name), cast("Any", options.timeout_s)
    if name is not None and not (isinstance(name, str) and name.strip()):
        raise ToolNotDeclarableError(f"{where}: name={name!r} is not a name; give a string that is not empty")
    if options.description is not None and not isinstance(cast("Any", options.description), str):
        raise ToolNotDeclarableError(f"{where}: description={options.description!r} is not text; give a string")
    is_number = isinstance(timeout_s, (int, float)) and not isinstance(timeout_s, bool)
    if timeout_s is not None and not (is_number and timeout_s > 0 and math.isfinite(timeout_s)):
        raise ToolNotDeclarableError(f"{where}: timeout_s={timeout_s!r} is not a time; give a number of seconds above 0")
    for word, allowed in (("isolation", get_args(Isolation)), ("run_in", get_args(RunIn))):
        if words.get(word) not in (None, *allowed):
            choices = " or ".join(map(repr, allowed))
            raise ToolNotDeclarableError(f"{where}: {word}={words[word]!r} is not known; use {choices}, or leave it out")
    for word in ("idempotent", "read_only", "sequential"):
        if not isinstance(words.get(word), bool | None):  # "no" is true, and would open what it was meant to close.
            raise ToolNotDeclarableError(f"{where}: {word}={words[word]!r} is not known; use True or False, or leave it out")
    _require_names(options.touches or (), where)
    if options.run_in == "loop" and options.isolation == "process":
        raise ToolNotDeclarableError(
            f"{where}: run_in='loop' keeps the function on the event loop's thread and isolation='process' takes it to "
            "another process; choose one of them"
        )
    return options


def _require_names(touches: Any, where: str) -> None:
    if not isinstance(touches, (list, tuple)) or not all(isinstance(one, str) for one in cast("list[Any]", touches)):
        raise ToolNotDeclarableError(f"{where}: touches={touches!r} is not a list of names; give one, as in ['orders']")


def _require_callable(fn: Any, where: str) -> None:
    if isinstance(fn, type):
        raise ToolNotDeclarableError(f"{where}: a class is not a tool; pass an instance that can be called, or a function")
    if not callable(fn):
        raise ToolNotDeclarableError(f"{where}: this cannot be called; pass a function, a bound method or a callable object")


def _described(fn: Any) -> str:
    return getattr(fn, "__qualname__", None) or repr(fn)[:100]
