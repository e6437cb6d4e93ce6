"""The `mcpServers` file, as gemini-cli, Claude and Amazon Q write it -> servers, and sentences on what was not understood.

One server that is written wrongly costs itself alone. Values may name variables of the environment (`$TOKEN`, `${TOKEN}`,
`${TOKEN:-default}`); one that is not set is said, not passed on as it stands.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from callgate import strict_json
from callgate.errors import JsonError, UsageError
from callgate.mcp.connection import ATTEMPT_S
from callgate.mcp.host import NOBODY, Host, Sampling
from callgate.mcp.lock import lock_beside
from callgate.mcp.oauth_client import oauth_client_of
from callgate.mcp.server import START_S, McpServer
from callgate.types import JsonObject

__all__ = ["ServersFile", "mcp_servers_from_file", "read_servers", "servers_of"]

_VARIABLE = re.compile(
    r"\$(?:\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|(?P<bare>[A-Za-z_][A-Za-z0-9_]*))"
)

# Key -> what it must hold.
_KEYS: Mapping[str, type | tuple[type, ...]] = {
    "command": (str, list), "args": list, "env": dict, "cwd": str, "url": str, "httpUrl": str, "type": str,
    "transport": str, "headers": dict, "timeout": (int, float), "startTimeout": (int, float),
    "start_s": (int, float), "startup_timeout_sec": (int, float), "startup_timeout_ms": (int, float),
    "oauth": dict, "auth": dict, "sampling": (bool, dict), "trust": bool, "instructions": bool, "disabled": bool,
    "enabled": bool,
    "includeTools": list, "excludeTools": list, "disabledTools": list,
}  # fmt: skip
# Key of the time for starting -> its unit in milliseconds: ours, and those of other systems.
_START_KEYS = {"startTimeout": 1, "start_s": 1000, "startup_timeout_sec": 1000, "startup_timeout_ms": 1}
# A time may name its unit, because systems that read such files do not agree on one.
_TIME = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m)\s*", re.ASCII)
_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000}
# Keys that say nothing of how to reach or treat the server.
_REMARKS = frozenset({"description", "name", "title", "$schema", "_comment", "comment"})
_TRANSPORTS = {"http": "http", "streamable-http": "http", "streamableHttp": "http", "streamable_http": "http", "sse": "sse"}


@dataclass(frozen=True, slots=True)
class ServersFile:
    """The servers of a file, and remarks on it."""

    servers: list[McpServer] = field(default_factory=list[McpServer])
    """The servers that can be used."""
    disabled: list[str] = field(default_factory=list[str])
    """Names of the servers that the file switches off."""
    warnings: list[str] = field(default_factory=list[str])
    """Servers that cannot be used, keys that are not known, variables that are not set."""


def mcp_servers_from_file(path: str | Path, *, host: Host | None = None) -> list[McpServer]:
    """The servers of an `mcpServers` file that are not disabled. What is not understood in it is a Python warning.

    Raises:
        UsageError: the file cannot be read, or is no such file.
    """
    read = read_servers(path, host=host)
    for sentence in read.warnings:
        warnings.warn(sentence, UserWarning, stacklevel=2)
    return read.servers


def read_servers(path: str | Path, environ: Mapping[str, str] | None = None, *, host: Host | None = None) -> ServersFile:
    """The servers of a file, and everything that should be said about it.

    Raises:
        UsageError: the file cannot be read, or is no such file.
    """
    try:
        data: Any = strict_json.parse(Path(path).read_bytes())
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be read: {error.strerror or error}") from error
    except JsonError as error:
        raise UsageError(f"{str(path)!r} is not JSON: {error}") from error
    rows: Any = cast("JsonObject", data).get("mcpServers") if isinstance(data, dict) else None
    if not isinstance(rows, dict):
        raise UsageError(f"{str(path)!r} has no object 'mcpServers': it should map names of servers to their settings")
    return servers_of(cast("dict[str, Any]", rows), environ, host=host, lock=lock_beside(path))


def servers_of(
    rows: Mapping[str, Any],
    environ: Mapping[str, str] | None = None,
    *,
    host: Host | None = None,
    lock: os.PathLike[str] | None = None,
) -> ServersFile:
    """The servers of a table that maps names to settings, and everything that should be said about it."""
    found = ServersFile()
    for name, row in rows.items():
        _read_row(name, row, os.environ if environ is None else environ, found, lock)
    for server in found.servers:
        own = server.host
        server.host = own if host is None else replace(host, sample=host.sample or own.sample)
    return found


def _read_row(name: str, row: Any, environ: Mapping[str, str], found: ServersFile, lock: os.PathLike[str] | None) -> None:
    where = f"MCP server {name!r}"
    if not isinstance(row, dict):
        found.warnings.append(f"{where} was left out: its settings must be an object.")
        return
    fields = _known_fields(where, cast("JsonObject", row), found.warnings)
    if fields.get("disabled") or fields.get("enabled") is False:
        found.disabled.append(name)
        return
    unset: set[str] = set()
    fields = {key: _expanded(value, environ, unset) for key, value in fields.items()}
    if unset:
        listed = ", ".join(sorted(unset))
        found.warnings.append(
            f"{where} was left out: the environment does not have {listed}. Set it, or disable the server."
        )
        return
    try:
        said: list[str] = []
        found.servers.append(_server(name, fields, said, lock))
        found.warnings.extend(f"{where}: {sentence}" for sentence in said)
    except UsageError as error:
        found.warnings.append(f"{where} was left out: {error}")


def _known_fields(where: str, row: JsonObject, said: list[str]) -> JsonObject:
    fields: JsonObject = {}
    for key, value in row.items():
        kind = _KEYS.get(key)
        is_time = key == "timeout" or key in _START_KEYS
        if is_time and isinstance(value, str) and (written := _TIME.fullmatch(value)):
            value = float(written[1]) * _MILLISECONDS[written[2]] / _START_KEYS.get(key, 1)
        if kind is None:
            if key not in _REMARKS:
                said.append(f"{where}: the key {key!r} is not known and was ignored.")
        elif not isinstance(value, kind) or (isinstance(value, bool) and bool not in _kinds(kind)):
            said.append(f"{where}: {key!r} cannot be {strict_json.dump(value).decode()[:60]} and was ignored.")
        else:
            fields[key] = value
    return fields


def _kinds(kind: type | tuple[type, ...]) -> tuple[type, ...]:
    return kind if isinstance(kind, tuple) else (kind,)


def _server(name: str, fields: JsonObject, said: list[str], lock: os.PathLike[str] | None) -> McpServer:
    command: Any = fields.get("command")
    if command is not None:
        command = [*(command if isinstance(command, list) else [command]), *fields.get("args", [])]  # pyright: ignore[reportUnknownVariableType]
    url = fields.get("httpUrl") or fields.get("url")
    kind = fields.get("type") or fields.get("transport")
    transport: Any = None
    if command is None:
        transport = "http" if "httpUrl" in fields else _TRANSPORTS.get(kind or "")
        if kind and kind not in _TRANSPORTS:
            raise UsageError(f"its type {kind!r} is not known; use 'stdio', 'http' or 'sse'")
    timeout = fields.get("timeout")
    starting = next((fields[key] * unit for key, unit in _START_KEYS.items() if key in fields), None)
    for time in (timeout, starting):
        if time is not None and time <= 0:
            raise UsageError("its timeout must be more than 0 milliseconds")
    if starting is None:  # Those who give it long for a call, as elsewhere, mean its start too.
        starting = 1000 * max(START_S, min(ATTEMPT_S, (timeout or 0) / 1000))
    for item in [*(command or []), *fields.get("includeTools", []), *fields.get("excludeTools", [])]:  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(item, str):
            raise UsageError(f"{item!r} must be a text")
    return McpServer(
        name,
        command=command,
        url=None if command is not None else url,
        env=_texts(fields.get("env")),
        headers=_texts(fields.get("headers")),
        timeout_s=None if timeout is None else timeout / 1000,
        start_s=starting / 1000,
        oauth=oauth_client_of(login, said) if (login := fields.get("oauth") or fields.get("auth")) else None,
        trust=fields.get("trust", False),
        instructions=fields.get("instructions", True),
        include=fields.get("includeTools"),
        exclude=[*fields.get("excludeTools", []), *fields.get("disabledTools", [])],
        cwd=fields.get("cwd"),
        lock=lock,
        host=NOBODY if (terms := fields.get("sampling")) in (None, False) else Host(sample=_sampling(terms)),
        transport=transport,
    )


def _sampling(terms: JsonObject | bool) -> Sampling:
    try:
        return Sampling() if isinstance(terms, bool) else Sampling(**terms)
    except TypeError:
        raise UsageError("its 'sampling' must be true, or have the keys 'requests', 'tokens' and 'ask' only") from None


def _texts(values: Any) -> dict[str, str] | None:
    return (
        None if values is None else {key: value if isinstance(value, str) else str(value) for key, value in values.items()}
    )


def _expanded(value: Any, environ: Mapping[str, str], unset: set[str]) -> Any:
    if isinstance(value, list):
        return [_expanded(item, environ, unset) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _expanded(item, environ, unset) for key, item in cast("JsonObject", value).items()}
    if not isinstance(value, str):
        return value

    def filled(match: re.Match[str]) -> str:
        name = match["braced"] or match["bare"]
        if name not in environ and match["default"] is None:
            unset.add(name)
        return environ.get(name) or match["default"] or ""

    return _VARIABLE.sub(filled, value)
