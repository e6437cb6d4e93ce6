"""One script made of the page's modules: a browser on a slow line waits for one answer, and not for thirty.

Modules in, the text of one module out. Each becomes a function that runs once, after those that it imports, and returns
what it exports. No more of the language is understood than the page's own files use; what else they might use is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

__all__ = ["bundle"]

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([\w-]+\.js)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|class|function\*?) (\w+))", re.MULTILINE)
_UNREAD = re.compile(r"^(?:import|export)\b.*|\bimport\(", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*(?://.*|/\*\*[^*]*(?:\*(?!/)[^*]*)*\*/[ \t]*)\n", re.MULTILINE)


def bundle(modules: Mapping[str, str], entry: str) -> str:
    """The text of `entry` with all that it imports; raises ValueError on what cannot be bundled."""
    return "".join(
        _wrapped(name, modules[name], is_last=name == entry) for name in dict.fromkeys(_ordered(modules, entry, ()))
    )


def _ordered(modules: Mapping[str, str], name: str, above: tuple[str, ...]) -> Iterator[str]:
    """The names of modules, each after those that it imports."""
    if name in above:
        raise ValueError(f"the modules {' -> '.join((*above[above.index(name) :], name))} import one another")
    for _, imported in _IMPORT.findall(modules[name]):
        yield from _ordered(modules, imported, (*above, name))
    yield name


def _wrapped(name: str, source: str, *, is_last: bool) -> str:
    text = _IMPORT.sub(lambda found: f"const {found[1]} = {_variable(found[2])};", _COMMENT.sub("", source))
    exported = _EXPORT.findall(text)
    text = _EXPORT.sub("", text)
    if unread := _UNREAD.search(text):
        raise ValueError(f"{name} has {unread[0]!r}, which cannot be bundled")
    if is_last:
        return text
    return f"const {_variable(name)} = (() => {{\n{text}return {{ {', '.join(exported)} }};\n}})();\n"


def _variable(name: str) -> str:
    return f"$${name.removesuffix('.js').replace('-', '_')}"
