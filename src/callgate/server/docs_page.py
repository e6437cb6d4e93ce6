"""The OpenAPI document as a page: plain HTML, no script, nothing from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape

from callgate.types import JsonObject

__all__ = ["page"]

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1b1f;background:#fff}"
    "code,pre{font:14px/1.45 ui-monospace,monospace}pre{background:#f4f4f6;padding:.75rem;overflow:auto;border-radius:6px}"
    "summary{cursor:pointer;padding:.35rem 0}b.m{display:inline-block;min-width:4.5rem}"
    "@media(prefers-color-scheme:dark){body{background:#131316;color:#e6e6ea}pre{background:#202026}a{color:#9ecbff}}"
)


def page(document: JsonObject) -> str:
    """The page of a document."""
    info = document["info"]
    rows = "".join(_rows(document))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(info["title"])}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])} "
        f'The same for programs: <a href="/openapi.json">/openapi.json</a>.</p>{rows}</body></html>'
    )


def _rows(document: JsonObject) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield (
                f'<details><summary><b class="m">{escape(method.upper())}</b> <code>{escape(path)}</code> '
                f"{escape(operation['summary'])}</summary>{''.join(_parts(operation))}</details>"
            )


def _parts(operation: JsonObject) -> Iterator[str]:
    if "description" in operation:
        yield f"<p>{escape(operation['description'])}</p>"
    for parameter in operation["parameters"]:
        name, place = escape(parameter["name"]), escape(parameter["in"])
        yield f"<p><code>{name}</code> in the {place}: {_shown(parameter['schema'])}</p>"
    if "requestBody" in operation:
        yield "<h4>Takes</h4>" + _block(operation["requestBody"]["content"]["application/json"]["schema"])
    for status, answer in operation["responses"].items():
        if status.startswith("2"):
            for kind, content in answer.get("content", {}).items():
                yield f"<h4>{escape(status)} {escape(kind)}</h4>{_block(content['schema'])}"


def _shown(schema: JsonObject) -> str:
    return f"<code>{escape(json.dumps(schema))}</code>"


def _block(schema: JsonObject) -> str:
    return f"<pre>{escape(json.dumps(schema, indent=2))}</pre>"
