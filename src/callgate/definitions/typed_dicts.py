"""Replace every `typing.TypedDict` in a type: pydantic refuses those before Python 3.12.

The replacement is a `typing_extensions.TypedDict` with the same fields. A dataclass that holds such a dict is replaced by a
typed dict of its fields that is turned into the dataclass after validation. Knows nothing of functions or tools, and can be
deleted once Python 3.11 is no longer supported.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, cast

__all__ = ["TypedDictConversion"]


class TypedDictConversion:
    """Converter of the types of one tool, so that a typed dict that occurs twice is still one type."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = dict(namespace)
        self._done: dict[Any, Any] = {}

    def usable(self, annotation: Any) -> Any:
        """The annotation in a form that pydantic takes on this Python."""
        if sys.version_info >= (3, 12):
            return annotation
        return self._of(annotation) if self._is_needed(annotation) else annotation

    def _is_needed(self, annotation: Any) -> bool:
        """True if a `typing.TypedDict` can be reached from here. Recursive types are entered once."""
        seen: list[Any] = []
        todo = [annotation]
        while todo:
            item = todo.pop()
            if any(item is other for other in seen):
                continue
            seen.append(item)
            if _is_old_typed_dict(item):
                return True
            todo += [typing.get_origin(item), *typing.get_args(item)]
            if _is_plain_dataclass(item) or _is_new_typed_dict(item):
                todo += self._hints(item).values()
        return False

    def _of(self, annotation: Any, bound: Mapping[Any, Any] | None = None) -> Any:
        """Convert an annotation; `bound` has the arguments of a generic typed dict."""
        origin, args = typing.get_origin(annotation), typing.get_args(annotation)
        is_new_with_old = _is_new_typed_dict(annotation) and self._is_needed(annotation)
        if is_new_with_old or _is_old_typed_dict(annotation) or _is_old_typed_dict(origin):
            return self._typed_dict(annotation, origin or annotation, args)
        if _is_plain_dataclass(annotation) and self._is_needed(annotation):
            return self._dataclass(annotation)
        if isinstance(annotation, typing.TypeVar):
            return (bound or {}).get(annotation, annotation)
        if not args or origin is typing.Literal:
            return annotation
        if origin is Annotated:
            return Annotated[(self._of(args[0], bound), *annotation.__metadata__)]
        converted = tuple(self._of(arg, bound) for arg in args)
        if origin is types.UnionType:
            return cast("Any", typing.Union)[converted]
        return annotation.copy_with(converted) if hasattr(annotation, "copy_with") else origin[converted]

    def _typed_dict(self, key: Any, source: Any, args: tuple[Any, ...]) -> Any:
        if key not in self._done:
            from typing_extensions import TypedDict

            made = self._done[key] = cast("Any", TypedDict)(source.__name__, {})
            made.__doc__, made.__module__, made.__qualname__ = source.__doc__, source.__module__, source.__qualname__
            if hasattr(source, "__pydantic_config__"):
                made.__pydantic_config__ = source.__pydantic_config__
            bound = dict(zip(getattr(source, "__parameters__", ()), args, strict=False))
            # The fields come last, so that a recursive type finds its own replacement.
            made.__annotations__ = {name: self._of(hint, bound) for name, hint in self._hints(source).items()}
            made.__required_keys__, made.__optional_keys__ = source.__required_keys__, source.__optional_keys__
        return self._done[key]

    def _dataclass(self, source: Any) -> Any:
        if source not in self._done:
            from pydantic import AfterValidator, Field
            from typing_extensions import TypedDict

            made = cast("Any", TypedDict)(source.__name__, {})
            made.__module__, made.__qualname__ = source.__module__, source.__qualname__
            self._done[source] = Annotated[made, AfterValidator(lambda fields: source(**fields))]
            hints = self._hints(source)
            required: set[str] = set()
            for field in dataclasses.fields(source):
                if not field.init:
                    continue
                hint = self._of(hints[field.name])
                if field.default is not dataclasses.MISSING:
                    hint = Annotated[hint, Field(default=field.default)]
                elif field.default_factory is not dataclasses.MISSING:
                    hint = Annotated[hint, Field(default_factory=field.default_factory)]
                else:
                    required.add(field.name)
                made.__annotations__[field.name] = hint
            made.__required_keys__ = frozenset(required)
            made.__optional_keys__ = frozenset(made.__annotations__) - required
        return self._done[source]

    def _hints(self, source: Any) -> dict[str, Any]:
        try:
            return typing.get_type_hints(source, include_extras=True)
        except NameError:  # written in a function, so its names are not those of its module
            return typing.get_type_hints(source, localns=self._namespace, include_extras=True)


def _is_old_typed_dict(item: Any) -> bool:
    return typing.is_typeddict(item) and type(item).__module__ == "typing"


def _is_new_typed_dict(item: Any) -> bool:
    return type(item).__module__ == "typing_extensions" and isinstance(item, type) and issubclass(item, dict)


def _is_plain_dataclass(item: Any) -> bool:
    return isinstance(item, type) and dataclasses.is_dataclass(item) and not hasattr(item, "__pydantic_validator__")
