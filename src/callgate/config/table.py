"""Every setting there is: its key, its form, its default, where else it can be given, and what it means.

A setting is given by a flag, by the environment, by a project's file, by the user's file, in this order. What a project's
file may say is in `project`: `yes`; `no`; `stricter`, where it counts only if it allows less than the user does; `adds`,
where it is put beside what the user says.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from callgate.types import Limits

__all__ = ["SETTINGS", "Kind", "Setting", "closest", "nearest", "setting_of"]

Kind: TypeAlias = Literal["text", "whole", "number", "flag", "texts", "list", "table"]
"""The kind of a setting's value."""
Project: TypeAlias = Literal["yes", "no", "stricter", "adds"]
"""The right of a project's file to set a setting: always, never, only to something stricter, or as an addition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting."""

    key: str
    """The key as written in a file, dots for tables: `limits.turns`."""
    kind: Kind = "text"
    """The kind of value that it takes."""
    default: Any = None
    """The value where nothing sets it."""
    doc: str
    """A sentence on what it does."""
    env: tuple[str, ...] = ()
    """Variables of the environment, the first that is set counts; the usual one is derived from the key."""
    flag: str | None = None
    """An option of `callgate chat`; `--set KEY=VALUE` takes every setting but secrets."""
    choices: tuple[str, ...] = ()
    """The values that it takes; empty if there is no list."""
    strictness: tuple[Any, ...] = ()
    """Values from the strictest to the laxest, where a project may only be stricter."""
    secret: bool = False
    """True if its value is masked where it is shown, and refused on a command line."""
    project: Project = "yes"
    """The right of a project's file to set it."""
    is_path: bool = False
    """A relative path is meant from the folder of the file that says it."""

    @property
    def variables(self) -> tuple[str, ...]:
        """Every variable of the environment that can give it."""
        own = f"CALLGATE_{self.key.upper().replace('.', '_')}"
        return self.env if self.env and self.env[0] == own else (own, *self.env)


def _setting(key: str, doc: str, **fields: Any) -> Setting:
    return Setting(key=key, doc=doc, **fields)


_PLAIN = (
    _setting(
        "provider", "Provider of the model; the best available by default.", flag="--provider",
        choices=("demo", "gemini", "openai", "openai-responses", "anthropic", "embedded"),
    ),
    _setting("model", "The model that answers: NAME, PROVIDER:NAME, or a .gguf file.", flag="--model"),
    _setting(
        "mode", "Declaration of tools to the model.", default="auto", flag="--mode", choices=("auto", "native", "prompted")
    ),
    _setting("system", "A system instruction for the whole conversation.", flag="--system"),
    _setting("tools", "Tools to load: module, module:fn, file.py or file.py:fn.", kind="texts", default=(), flag="--tool"),
    _setting("tools_shown", "Number of tools declared from the start; the model finds the others.", kind="whole"),
    _setting("root", "The folder that the file tools work in.", flag="--root", is_path=True),
    _setting("output", "Format of the output.", default="text", flag="--output", choices=("text", "json", "stream-json")),
    _setting(
        "theme", "Colours in the terminal: its own, for a dark or a light one, or none.", default="terminal",
        choices=("terminal", "dark", "light", "colorblind", "plain"),
    ),
    _setting(
        "compaction", "Treatment of the oldest turns of a history that is too long.", default="summary",
        choices=("summary", "trim"),
    ),
    _setting("store", "Store of sessions: a SQLite file or postgresql://...", flag="--store", project="no"),
    _setting(
        "durable", "Facts of the journal that wait for the disk: those before an effect, or everything.", default="effects",
        choices=("effects", "everything"), project="no",
    ),
    _setting(
        "store_replica", "A read-only copy of the PostgreSQL store, for lists and exports: postgresql://...", project="no"
    ),
    _setting(
        "retention.sessions",
        "Time the service keeps sessions after their last use: 90d, 12h, 45m; at least 1m. 'never', or not set, keeps them.",
        project="no",
    ),
    _setting(
        "retention.anonymous", "The same for sessions that their client did not name; 7d if not set. 'never' keeps them.",
        default="7d", project="no",
    ),
    _setting("audit", "The audit log, with a record of every call.", flag="--audit", project="no", is_path=True),
    _setting(
        "audit_key",
        "The file of the key that seals the audit log; created if it does not exist. Needs `audit`.",
        project="no", is_path=True,
    ),
    _setting(
        "audit_anchor", "The anchor file, to which every end of the audit log is appended. Needs `audit`.",
        project="no", is_path=True,
    ),
    _setting(
        "log_level", "Level of the log on stderr; nothing unless it is set, except for errors of `serve`.", flag="--debug",
        choices=("debug", "info", "warning", "error"),
    ),
    _setting(
        "approval_mode", "Calls that need approval.", flag="--approval-mode", project="stricter",
        choices=("default", "auto_edit", "yolo", "plan"), strictness=("plan", None, "default", "auto_edit", "yolo"),
    ),
    _setting(
        "policy.default", "Verdict for a call that no rule matches.", choices=("allow", "ask", "deny"),
        project="stricter", strictness=("deny", "ask", None, "allow"),
    ),
    _setting("policy.rules", "Rules that allow, ask about or deny calls.", kind="list", default=(), project="adds"),
    _setting(
        "policy.sensitive_also", "Patterns of further files that always need approval.", kind="texts", default=(),
        project="adds",
    ),
    _setting("policy.hooks", "Commands that are run before and after calls.", kind="list", default=(), project="no"),
    _setting("policy.file", "A file with further rules.", flag="--policy", project="no", is_path=True),
    _setting(
        "mcp.files", "Files with mcpServers, whose tools can be called.", kind="texts", default=(), flag="--mcp",
        project="no", is_path=True,
    ),
    _setting("mcp.servers", "MCP servers by name, with the keys of an mcpServers file.", kind="table", project="adds"),
    _setting("settings", "Settings of the model: temperature, thinking, max_output_tokens ...", kind="table"),
    _setting("prices", "Price of a million tokens of a model: input, output, cached.", kind="table", project="no"),
    _setting(
        "trace.content", "True to record messages in spans, not only durations.", kind="flag", default=False,
        env=("CALLGATE_TRACE_CONTENT", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"), project="no",
    ),
    _setting(
        "gemini.api_key", "The key of the Gemini API.", env=("GOOGLE_API_KEY", "GEMINI_API_KEY"), secret=True, project="no"
    ),
    _setting("gemini.model", "The Gemini model where none is named.", env=("GEMINI_MODEL",)),
    _setting(
        "gemini.api", "The API of Gemini to use.", env=("GEMINI_API",), flag="--api",
        choices=("generateContent", "interactions"),
    ),
    _setting("gemini.base_url", "Base URL of the Gemini API.", env=("GOOGLE_GEMINI_BASE_URL",), project="no"),
    _setting("gemini.api_version", "The version of the Gemini API.", env=("GOOGLE_GENAI_API_VERSION",), project="no"),
    _setting(
        "gemini.vertex", "True to use Gemini through Vertex AI.", kind="flag",
        env=("GOOGLE_GENAI_USE_ENTERPRISE", "GOOGLE_GENAI_USE_VERTEXAI"), project="no",
    ),
    _setting("gemini.vertex_base_url", "Base URL of Vertex AI.", env=("GOOGLE_VERTEX_BASE_URL",), project="no"),
    _setting("gemini.project", "The Google Cloud project.", env=("GOOGLE_CLOUD_PROJECT",), project="no"),
    _setting("gemini.location", "The Google Cloud location.", env=("GOOGLE_CLOUD_LOCATION",), project="no"),
    _setting(
        "openai.api_key", "The key of an OpenAI-compatible server.", env=("OPENAI_API_KEY",), secret=True, project="no"
    ),
    _setting("openai.base_url", "Base URL of an OpenAI-compatible server.", env=("OPENAI_BASE_URL",), project="no"),
    _setting("anthropic.api_key", "The key of Anthropic's API.", env=("ANTHROPIC_API_KEY",), secret=True, project="no"),
    _setting("anthropic.base_url", "Base URL of Anthropic's API.", env=("ANTHROPIC_BASE_URL",), project="no"),
)  # fmt: skip

_LIMITS = tuple(
    _setting(
        f"limits.{limit.name}",
        "See `Limits` in the documentation.",
        kind="number" if limit.name.endswith(("_s", "_cost")) else "whole",
        default=limit.default,
        project="stricter",
    )
    for limit in fields(Limits)
)

SETTINGS: dict[str, Setting] = {setting.key: setting for setting in (*_PLAIN, *_LIMITS)}
"""Key -> the setting."""


def setting_of(key: str) -> Setting:
    """The setting with that key.

    Raises:
        KeyError: there is none; the message has the nearest one.
    """
    if key not in SETTINGS:
        raise KeyError(f"{key!r} is not a setting{nearest(key, SETTINGS)}")
    return SETTINGS[key]


def closest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known word that is nearest; the same letters in another order are nearer than anything."""
    near = difflib.get_close_matches(word, sorted(known), n=5, cutoff=cutoff)
    return next((one for one in near if sorted(one) == sorted(word)), next(iter(near), None))


def nearest(word: str, known: Iterable[str]) -> str:
    """`: did you mean ...?` with the nearest known word, or where to find all of them if none is near."""
    listed = sorted(known)
    # A key without its table, or in another one, has the same last part.
    last = (key for key in listed if key.rpartition(".")[2] == word.rpartition(".")[2])
    near = closest(word, listed) or next(last, None)
    return f": did you mean {near!r}?" if near else "; `callgate config show` lists all of them"
