"""Signatures of callables: names, kinds, resolved types and defaults of their parameters.

Functions, methods, partials, callable objects and wrappers are treated alike. Knows nothing of JSON, schemas or docstrings.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, cast

from callgate.errors import ToolNotDeclarableError
from callgate.types import ToolContext

__all__ = [
    "ABSENT",
    "Parameter",
    "Signature",
    "deps_types_of",
    "is_async_callable",
    "is_callable_object",
    "layers",
    "local_types",
    "own_name",
    "signature_from",
]

ABSENT: Any = inspect.Parameter.empty
"""Marker for an absent default or annotation."""

_LAYERS_MAX = 100
_Kind = inspect.Parameter
# Words about a key of a typed dict, around its type.
_NEEDED: dict[Any, bool] = {typing.Required: True, typing.NotRequired: False}
# Not every annotation has the `|` operator.
_OPTIONAL: Any = typing.Optional


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter that a caller still has to fill."""

    name: str
    kind: Any
    """One of the kinds of `inspect.Parameter`."""
    type: Any
    """The resolved annotation: `list[T]` for `*args: T`, `dict[str, T]` for `**kwargs: T`, `Any` without one."""
    default: Any = ABSENT
    is_annotated: bool = True
    is_context: bool = False
    """Filled with the `ToolContext` of the call, and hidden from the model."""
    may_be_absent: bool = False
    """True for a key of `**kwargs: Unpack[Options]` that may be left out, and has no default."""

    @property
    def is_variadic(self) -> bool:
        """True if this is `*args` or `**kwargs`."""
        return self.kind in (_Kind.VAR_POSITIONAL, _Kind.VAR_KEYWORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The parameters and return type of a callable."""

    parameters: tuple[Parameter, ...]
    returns: Any
    """The resolved return annotation, or `ABSENT` when there is none or it cannot be resolved."""
    namespace: Mapping[str, Any]
    """Local names of the scope that defines the callable, for types that refer to each other by name."""
    reserved: frozenset[str]
    """Names that `**kwargs` must not carry, because the callable or a partial of it has taken them."""


def signature_from(fn: Callable[..., Any], *, tool_name: str, namespace: Mapping[str, Any]) -> Signature:
    """Read the signature of `fn`. `namespace` holds the local types that existed when the function was decorated.

    Raises:
        ToolNotDeclarableError: there is no signature, an annotation cannot be resolved, or a method is not bound to an
        object.
    """
    try:
        raw = _dispatching(fn, _raw_signature(fn))
    except (ValueError, TypeError) as error:
        raise ToolNotDeclarableError(
            f"tool {tool_name!r}: {fn!r} has no readable signature ({error}); wrap it in a function with annotations"
        ) from None
    chain = list(layers(fn))
    bound = frozenset(name for layer in chain if isinstance(layer, functools.partial) for name in layer.keywords)
    scope = _Scope(chain, namespace)
    reserved = bound | _taken_names(chain)
    parameters = tuple(
        found
        for name, parameter in raw.parameters.items()
        if name not in bound
        for found in _by_name(_parameter(parameter, scope, tool_name), scope, tool_name, reserved)
    )
    is_written_so = len(chain) == 1 or _dispatches(fn)
    if is_written_so and parameters and parameters[0].name == "self" and not parameters[0].is_annotated:
        raise ToolNotDeclarableError(
            f"tool {tool_name!r}: this is a method without its object, and no model can give it one; pass it bound to one, "
            "as in tools=[store.find]"
        )
    contexts = [parameter.name for parameter in parameters if parameter.is_context]
    if len(contexts) > 1:
        raise ToolNotDeclarableError(
            f"tool {tool_name!r}: {' and '.join(map(repr, contexts))} are both annotated ToolContext; keep one of them"
        )
    try:
        returns = ABSENT if raw.return_annotation is ABSENT else scope.resolved(raw.return_annotation)
    except _UnresolvedError:
        returns = ABSENT
    return Signature(parameters=parameters, returns=returns, namespace=scope.own, reserved=reserved)


def layers(fn: Any) -> Iterator[Any]:
    """The callable, then what it wraps or binds, down to the function that was written."""
    for _ in range(_LAYERS_MAX):
        yield fn
        if isinstance(fn, functools.partial):
            fn = cast("Any", fn).func
        elif isinstance(fn, (types.MethodType, staticmethod, classmethod)):
            fn = cast("Any", fn).__func__
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        elif is_callable_object(fn):
            fn = type(fn).__call__
        else:
            return


def own_name(fn: Any) -> str | None:
    """The name that the callable was written under; a class in snake case for an object; None for a lambda."""
    for layer in layers(fn):
        name = getattr(layer, "__name__", None)
        if isinstance(name, str):
            return None if name == "<lambda>" else name
        if is_callable_object(layer):
            return _snake_case(type(layer).__name__)
    return None


def is_async_callable(fn: Any, test: Callable[[Any], bool] = inspect.iscoroutinefunction) -> bool:
    """True if calling `fn` returns a coroutine (or whatever else `test` checks)."""
    while isinstance(fn, (functools.partial, types.MethodType, staticmethod)):
        fn = cast("Any", fn).func if isinstance(fn, functools.partial) else cast("Any", fn).__func__
    return test(fn) or (is_callable_object(fn) and test(type(fn).__call__))


def is_callable_object(fn: Any) -> bool:
    """True if `fn` is an instance of a class with a `__call__` written in Python."""
    return not isinstance(fn, type) and isinstance(getattr(cast("Any", type(fn)), "__call__", None), types.FunctionType)  # noqa: B004


def local_types(fn: Any) -> dict[str, Any]:
    """Return the locals of the enclosing running functions that the annotations of `fn` may name.

    With `from __future__ import annotations` such names exist nowhere else, and only while those functions run. Types and
    modules are kept, since types may name each other; of other values only those that an annotation names.
    """
    written = list(layers(fn))[-1]
    code = getattr(written, "__code__", None)
    found: dict[str, Any] = {}
    if not isinstance(code, types.CodeType) or "<locals>" not in code.co_qualname:
        return found
    named = _names_in_annotations(written)
    frame: types.FrameType | None = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name != "<module>" and _encloses(frame.f_code, code):
            visible = frame.f_locals.items()
            found = {name: value for name, value in visible if name in named or _is_type_like(value)} | found
        frame = frame.f_back
    return found


class _UnresolvedError(Exception):
    """An annotation that names something unknown."""


class _Scope:
    """The names that an annotation of one callable may use."""

    def __init__(self, chain: list[Any], namespace: Mapping[str, Any]) -> None:
        inner = chain[-1]
        self.globals: dict[str, Any] = getattr(inner, "__globals__", {})
        owners = [type(layer.__self__) for layer in chain if isinstance(layer, types.MethodType)]
        owners += [
            owner.__self__ for owner in chain if isinstance(owner, types.MethodType) and isinstance(owner.__self__, type)
        ]
        owners += [type(layer) for layer in chain if is_callable_object(layer)]
        self.own: dict[str, Any] = {item.__name__: item for item in getattr(inner, "__type_params__", ())}
        self.own |= {**namespace, **_closure(inner), **local_types(inner)}
        # Names of a class body or of a TYPE_CHECKING import; real names take precedence.
        guesses: dict[str, Any] = {"ToolContext": ToolContext}
        for owner in owners:
            guesses |= {name: value for cls in reversed(owner.__mro__) for name, value in vars(cls).items()}
        self._guesses = {n: v for n, v in guesses.items() if n not in self.globals and not hasattr(builtins, n)}

    def resolved(self, annotation: Any) -> Any:
        def carrier() -> None: ...

        carrier.__annotations__ = {"value": annotation}
        try:
            return typing.get_type_hints(carrier, self.globals, {**self._guesses, **self.own}, include_extras=True)["value"]
        except Exception as error:  # an annotation is code of the tool's author and may raise anything
            raise _UnresolvedError(f"{type(error).__name__}: {error}") from error


def _parameter(raw: inspect.Parameter, scope: _Scope, tool_name: str) -> Parameter:
    is_annotated = raw.annotation is not ABSENT
    default: Any = raw.default
    try:
        kind: Any = scope.resolved(raw.annotation) if is_annotated else Any
        is_context = _is_context(kind)
        if raw.kind is _Kind.VAR_POSITIONAL:
            kind = _unpacked(kind) or list[kind]
        elif raw.kind is _Kind.VAR_KEYWORD:
            kind = _unpacked(kind) or dict[str, kind]
        elif _is_field(default):
            # `x: int = Field(...)` is a description and perhaps a default, not a value for the function.
            kind, default = Annotated[kind, default], ABSENT
        elif default is None:
            kind = _nullable(kind)
    except (_UnresolvedError, TypeError) as error:
        raise ToolNotDeclarableError(
            f"tool {tool_name!r}: the annotation {raw.annotation!r} of parameter {raw.name!r} cannot be resolved ({error}); "
            "define or import the type at module level, or use @tool where the function is written"
        ) from None
    if is_context and raw.kind in (_Kind.VAR_POSITIONAL, _Kind.VAR_KEYWORD):
        raise ToolNotDeclarableError(f"tool {tool_name!r}: {raw} cannot take the ToolContext; use a single parameter for it")
    return Parameter(
        name=raw.name, kind=raw.kind, type=kind, default=default, is_annotated=is_annotated, is_context=is_context
    )


def _by_name(parameter: Parameter, scope: _Scope, tool_name: str, reserved: frozenset[str]) -> list[Parameter]:
    """The parameter; in place of `**kwargs: Unpack[Options]` one for each key of a typed dict, which are its arguments."""
    if parameter.kind is not _Kind.VAR_KEYWORD:
        return [parameter]
    from typing_extensions import ReadOnly, is_typeddict  # Few tools need it, and all would pay for the import.

    kind = parameter.type
    if not is_typeddict(kind):
        return [parameter]
    try:
        hints = typing.get_type_hints(kind, localns={**scope.globals, **scope.own}, include_extras=True)
    except Exception as error:  # an annotation is code of the tool's author and may raise anything
        raise ToolNotDeclarableError(
            f"tool {tool_name!r}: {kind.__name__!r} of {parameter.name!r} has an annotation that cannot be "
            f"resolved ({error})"
        ) from None
    if taken := sorted(hints.keys() & reserved):
        raise ToolNotDeclarableError(f"tool {tool_name!r}: {taken[0]!r} is a parameter and a key of {kind.__name__!r}")
    found: list[Parameter] = []
    for key, hint in hints.items():
        is_needed = key in kind.__required_keys__
        bare: Any = hint
        while (origin := typing.get_origin(bare)) in (*_NEEDED, ReadOnly):
            is_needed = _NEEDED.get(origin, is_needed)
            bare = typing.get_args(bare)[0]
        found.append(Parameter(name=key, kind=_Kind.KEYWORD_ONLY, type=bare, may_be_absent=not is_needed))
    return found


def _is_field(default: Any) -> bool:
    """True for `Field(...)`, of which there is none as long as nobody has imported pydantic."""
    pydantic: Any = sys.modules.get("pydantic.fields")
    return pydantic is not None and isinstance(default, pydantic.FieldInfo)


def _raw_signature(fn: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(fn, annotation_format=Format.FORWARDREF)
    return inspect.signature(fn)


def _dispatches(fn: Any) -> bool:
    return callable(getattr(fn, "register", None)) and hasattr(fn, "__wrapped__")


def _dispatching(fn: Any, raw: inspect.Signature) -> inspect.Signature:
    """The signature as `functools.singledispatch` takes it, which looks at the first argument and not at its name.

    A method of that kind is bound, and shows the signature of the function that it is not bound to.
    """
    if not _dispatches(fn):
        return raw
    parameters = list(raw.parameters.values())
    code: Any = getattr(fn, "__code__", None)
    made_by: str = code.co_qualname if isinstance(code, types.CodeType) else cast("type[Any]", type(fn)).__qualname__
    method = getattr(fn, "__wrapped__", None)
    is_bound = _closure(fn).get("obj", ABSENT) is not None or isinstance(method, classmethod)
    if "singledispatchmethod" in made_by and is_bound and not isinstance(method, staticmethod):
        parameters = parameters[1:]
    if parameters and parameters[0].kind is _Kind.POSITIONAL_OR_KEYWORD:
        parameters[0] = parameters[0].replace(kind=_Kind.POSITIONAL_ONLY)
    return raw.replace(parameters=parameters)


def _taken_names(chain: list[Any]) -> frozenset[str]:
    """Every name that some layer takes by keyword: a bound `self`, a parameter that a partial has filled."""
    taken: set[str] = set()
    for layer in chain:
        try:
            raw = _raw_signature(layer)
        except (ValueError, TypeError):
            continue
        taken |= {p.name for p in raw.parameters.values() if p.kind in (_Kind.POSITIONAL_OR_KEYWORD, _Kind.KEYWORD_ONLY)}
    return frozenset(taken)


def _is_context(annotation: Any) -> bool:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _is_context(args[0])
    if origin in (Union, types.UnionType):
        rest = [arg for arg in args if arg is not type(None)]
        return len(rest) == 1 and _is_context(rest[0])
    return (isinstance(annotation, type) and issubclass(annotation, ToolContext)) or origin is ToolContext


def deps_types_of(annotation: Any) -> tuple[type, ...]:
    """The classes in `ToolContext[One | Two]`; empty where it names something that no value can be tested for."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is ToolContext:
        return _testable_types(args[0])
    inner = args[:1] if origin is Annotated else args if origin in (Union, types.UnionType) else ()
    return next((found for arg in inner if (found := deps_types_of(arg))), ())


def _testable_types(annotation: Any) -> tuple[type, ...]:
    """The classes of which a value must be one; empty if they do not say it all: protocols, typed dicts, `Any`."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _testable_types(args[0])
    if origin in (Union, types.UnionType):
        found = [_testable_types(arg) for arg in args]
        return tuple(kind for kinds in found for kind in kinds) if all(found) else ()
    kind: Any = origin or (type(None) if annotation is None else annotation)  # Of `list[int]`, `list` can be tested.
    is_class = isinstance(kind, type) and kind is not Any and not typing.is_typeddict(kind)
    return (cast("type", kind),) if is_class and not getattr(kind, "_is_protocol", False) else ()


def _nullable(annotation: Any) -> Any:
    """`T | None`: a function that has None as a default takes it, so the model may send it."""
    if typing.get_origin(annotation) is Annotated:
        return Annotated[(_OPTIONAL[typing.get_args(annotation)[0]], *annotation.__metadata__)]
    return annotation if annotation is Any else _OPTIONAL[annotation]


def _unpacked(annotation: Any) -> Any:
    """The whole type of `**kwargs: Unpack[Options]` or `*args: *tuple[int, str]`, else None."""
    if getattr(annotation, "__unpacked__", False):
        return typing.get_origin(annotation)[typing.get_args(annotation)]
    is_unpack = (
        getattr(typing.get_origin(annotation), "__name__", getattr(typing.get_origin(annotation), "_name", "")) == "Unpack"
    )
    return typing.get_args(annotation)[0] if is_unpack else None


def _names_in_annotations(fn: Any) -> set[str]:
    if sys.version_info >= (3, 14):
        return set()  # Annotations are functions there, and find their names by themselves.
    texts = [text for text in getattr(fn, "__annotations__", {}).values() if isinstance(text, str)]
    return {name for text in texts for name in re.findall(r"[^\W\d]\w*", text)}


def _is_type_like(value: Any) -> bool:
    return isinstance(value, (type, types.ModuleType)) or type(value).__module__ in ("typing", "types", "typing_extensions")


def _encloses(outer: types.CodeType, code: types.CodeType) -> bool:
    inner = [constant for constant in outer.co_consts if isinstance(constant, types.CodeType)]
    return any(constant is code or _encloses(constant, code) for constant in inner)


def _closure(fn: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, cell in zip(
        getattr(getattr(fn, "__code__", None), "co_freevars", ()), getattr(fn, "__closure__", None) or (), strict=False
    ):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _snake_case(name: str) -> str:
    words = "".join(
        f"_{char.lower()}"
        if char.isupper() and index and not (name[index - 1].isupper() and not name[index + 1 : index + 2].islower())
        else char.lower()
        for index, char in enumerate(name)
    )
    return words.lstrip("_").replace("__", "_")
