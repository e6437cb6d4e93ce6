"""Python types to JSON Schema and a decoder of JSON values: the only module that uses pydantic's internals.

Knows nothing of functions, of tools or of how a value will be used.
"""

from __future__ import annotations

import functools
import logging
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from enum import Flag
from typing import TYPE_CHECKING, Any, NotRequired, Required, cast

from callgate.definitions.json_decoding import string_keys
from callgate.definitions.typed_dicts import TypedDictConversion
from callgate.errors import CallgateError, JsonError
from callgate.schema.problems import readable_path, shown
from callgate.strict_json import dump, first_bad, parse

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

__all__ = [
    "FieldType", "NotExpressibleError", "accepts_none_of_it", "adapter_for", "default_as_json", "fields_adapter",
    "schema_of",
    "sentences_of",
]  # fmt: skip

_log = logging.getLogger("callgate.definitions")

# Where a schema holds further schemas. Everything else (`default`, `enum`, `const`, `examples`) is data and is left alone.
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES = ("items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else")
# Types of a core schema that no text is read as.
_NO_KEYS = frozenset({"tuple", "list", "set", "frozenset", "dict", "model", "dataclass", "typed-dict", "none", "call"})
_FLAGS_LISTED_MAX = 6
_SELF: Any = cast("Any", typing).Self


class NotExpressibleError(CallgateError):
    """pydantic cannot express this type in JSON; the message is its reason in one sentence."""


class FieldType:
    """A type with the settings of its `Field`."""

    def __init__(self, annotation: Any, conversion: TypedDictConversion) -> None:
        from pydantic.fields import FieldInfo

        if never := _never_json(annotation):
            raise NotExpressibleError(never)
        try:
            self.type = conversion.usable(annotation)
            self._info = FieldInfo.from_annotation(self.type)
        except Exception as error:  # types bring their own code along, which may raise anything
            raise NotExpressibleError(_first_sentence(error)) from error

    @property
    def is_required(self) -> bool:
        """True if there is no `Field(default=...)` for an absent value."""
        return self._info.is_required()

    @property
    def description(self) -> str | None:
        """From `Field(description=...)`, `Doc(...)` or a plain string in `Annotated`, in this order."""
        texts = [self._info.description]
        texts += [getattr(item, "documentation", item) for item in self._info.metadata]
        return next((text for text in texts if isinstance(text, str)), None)

    def key(self, name: str) -> str:
        """The name of the value in JSON: the alias, if there is one."""
        aliases = (self._info.validation_alias, self._info.alias)
        return next((alias for alias in aliases if isinstance(alias, str)), name)


def adapter_for(annotation: Any, namespace: Mapping[str, Any]) -> TypeAdapter[Any]:
    """A pydantic adapter; names inside the type are also looked up in `namespace`.

    Raises:
        NotExpressibleError: pydantic cannot handle the type.
    """
    try:
        return _built(annotation, {})
    except Exception as error:  # types bring their own code along, which may raise anything
        if not namespace:
            raise NotExpressibleError(_first_sentence(error)) from error
    # Only now the names local to a function: a type of another module that has the same name must not be hidden by them.
    try:
        return _built(annotation, namespace)
    except Exception as error:
        raise NotExpressibleError(_first_sentence(error)) from error


def fields_adapter(
    fields: Mapping[str, FieldType], required: Sequence[str], namespace: Mapping[str, Any]
) -> TypeAdapter[Any]:
    """An adapter for an object with these fields. A typed dict takes any name (`self`, `json`, `_x`); a model would not."""
    from typing_extensions import TypedDict

    try:
        members = {name: (Required if name in required else NotRequired)[field.type] for name, field in fields.items()}
    except TypeError as error:  # `ClassVar` and `Final` are not types of a value
        raise NotExpressibleError(_first_sentence(error)) from error
    return adapter_for(cast("Any", TypedDict)("_Arguments_", members), namespace)


def accepts_none_of_it(field: FieldType, namespace: Mapping[str, Any]) -> bool:
    """True if an empty list, or an empty object, is a value of the type."""
    if typing.get_origin(field.type) in (list, dict):
        return True
    from pydantic import ValidationError

    try:
        adapter_for(field.type, namespace).validate_python([] if typing.get_origin(field.type) is tuple else {})
    except (NotExpressibleError, ValidationError):
        return False
    return True


def schema_of(adapter: TypeAdapter[Any], *, mode: Any = "validation") -> dict[str, Any]:
    """Return the adapter's JSON Schema without the titles that pydantic generates.

    Raises:
        NotExpressibleError: the type has no JSON form.
    """
    try:
        schema = adapter.json_schema(schema_generator=_generator(), mode=mode)
    except Exception as error:
        raise NotExpressibleError(_first_sentence(error)) from error
    _tidy(schema)
    return schema


def default_as_json(adapter: TypeAdapter[Any], name: str, key: str, value: Any) -> tuple[bool, Any]:
    """Return whether the default of field `name` has a JSON form, and that form."""
    from pydantic_core import PydanticSerializationError

    if first_bad(value):
        return False, None
    try:
        written = adapter.dump_python({name: value}, mode="json", by_alias=True, warnings=False)
        plain = parse(dump(written[key]))
    except (PydanticSerializationError, JsonError, ValueError, TypeError, KeyError, AttributeError):
        return False, None
    if isinstance(value, (set, frozenset)) and isinstance(plain, list):
        # The order of a set changes from run to run, and a declaration must not.
        plain = sorted(cast("list[Any]", plain), key=dump)
    return True, plain


_EXAMPLES = {
    "date_parsing": ", such as 2026-11-23",
    "date_from_datetime_parsing": ", such as 2026-11-23",
    "datetime_parsing": ", such as 2026-11-23T08:30:00Z",
    "datetime_from_date_parsing": ", such as 2026-11-23T08:30:00Z",
    "time_parsing": ", such as 08:30:00",
}


def sentences_of(error: ValidationError, value: Any) -> tuple[str, ...]:
    """Format pydantic's errors as sentences that let a model correct itself."""
    found: dict[str, None] = {}
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        missing = item["type"] == "missing"
        path = _real_path(item["loc"][:-1] if missing else item["loc"], value)
        text = (
            item["msg"]
            .removeprefix("Value error, ")
            .removeprefix("Assertion failed, ")
            .replace("Input should be", "should be")
        ) + _EXAMPLES.get(item["type"], "")
        if missing:
            last = item["loc"][-1]
            text = f"{shown(last) if isinstance(last, str) else f'item {last}'} is required but missing"
        found[f"{readable_path(path)}: {text}" if path else text] = None
    return tuple(found)[:10]


def _real_path(loc: Iterable[str | int], value: Any) -> list[str | int]:
    """The steps of a pydantic location that lead through the value; it also names the branches of unions."""
    path: list[str | int] = []
    here: Any = value
    for step in loc:
        if isinstance(here, Mapping) and step in here:
            here = cast("Mapping[Any, Any]", here)[step]
        elif isinstance(here, (list, tuple)) and isinstance(step, int) and step < len(cast("list[Any]", here)):
            here = cast("list[Any]", here)[step]
        else:
            continue
        path.append(step)
    return path


def _built(annotation: Any, namespace: Mapping[str, Any]) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, PydanticUserError, TypeAdapter

    try:
        # Built in a second step, because only a rebuild takes a namespace.
        adapter: TypeAdapter[Any] = TypeAdapter(annotation, config=ConfigDict(defer_build=True))
    except PydanticUserError:  # a model or a dataclass has its own configuration and takes no other
        adapter = TypeAdapter(annotation)
    adapter.rebuild(raise_errors=True, _types_namespace=dict(namespace))
    return adapter


@functools.cache
def _generator() -> Any:
    from pydantic.json_schema import GenerateJsonSchema

    class Generator(GenerateJsonSchema):
        def emit_warning(self, kind: Any, detail: str) -> None:
            _log.info("while declaring a tool: %s (%s)", detail, kind)

        def is_subclass_schema(self, schema: Any) -> Any:
            return self.handle_invalid_for_json_schema(schema, f"a class (type[{schema['cls'].__name__}])")

        def enum_schema(self, schema: Any) -> Any:
            if not schema["members"]:
                return self.handle_invalid_for_json_schema(schema, f"the enum {schema['cls'].__name__} without members")
            said = super().enum_schema(schema)
            return _flags_schema(schema["cls"], said) if issubclass(schema["cls"], Flag) else said

        def field_is_present(self, field: Any) -> bool:
            # A dataclass sets such a field itself and does not look at what was sent for it.
            is_given = self.mode == "serialization" or field.get("init", True)
            return is_given and super().field_is_present(field)

        def dict_schema(self, schema: Any) -> Any:
            kind = schema.get("keys_schema", {}).get("type")
            if kind in _NO_KEYS:
                return self.handle_invalid_for_json_schema(schema, f"a dict with keys of type {kind!r}, where JSON has text")
            return super().dict_schema(schema)

    return Generator


def _flags_schema(flags: type[Flag], said: dict[str, Any]) -> dict[str, Any]:
    """Allow combined flags: every sum of them is a value, not just each alone."""
    bits = [member.value for member in flags]
    whole = sum(bits)
    words = "Sum of: " + ", ".join(f"{member.value} ({member.name})" for member in flags)
    said = {key: value for key, value in said.items() if key != "enum"}
    said |= {"type": "integer", "description": f"{said['description']}\n{words}" if said.get("description") else words}
    if whole & (whole + 1) == 0:
        return said | {"minimum": 0, "maximum": whole}
    if len(bits) > _FLAGS_LISTED_MAX:
        return said | {"minimum": 0}
    sums = {0}
    for bit in bits:
        sums |= {some | bit for some in sums}
    return said | {"enum": sorted(sums)}


def _never_json(annotation: Any) -> str | None:
    """Explain why pydantic's own schema of an annotation cannot be trusted."""
    if annotation is _SELF:
        return "Self has no meaning outside its class"
    if typing.get_origin(annotation) is re.Pattern and typing.get_args(annotation) == (bytes,):
        return "a pattern of bytes cannot be written in JSON"
    return next(filter(None, map(_never_json, typing.get_args(annotation))), None)


def _tidy(schema: dict[str, Any]) -> None:
    """Remove `title` where it is an annotation of a schema (a property of that name stays), and describe keys as text."""
    definitions: dict[str, Any] = schema.get("$defs", {})
    todo: list[Any] = [schema]
    while todo:
        node = todo.pop()
        if not isinstance(node, dict):
            continue
        item = cast("dict[str, Any]", node)
        if isinstance(item.get("title"), str):
            del item["title"]
        if "propertyNames" in item:
            item["propertyNames"] = string_keys(item["propertyNames"], definitions)
        for keyword in _MAPS:
            todo.extend(cast("dict[str, Any]", item.get(keyword, {})).values())
        for keyword in _LISTS:
            todo.extend(cast("list[Any]", item.get(keyword, [])))
        todo.extend(item[keyword] for keyword in _SINGLES if keyword in item)


def _first_sentence(error: Exception) -> str:
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return text.split(". ")[0].rstrip(".")
