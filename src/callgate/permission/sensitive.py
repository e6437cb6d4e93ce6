"""Files that hold secrets or give power, and where the arguments of a call name files at all.

A definition and arguments come in; the paths in them, and the first sensitive one, go out. Only words are compared: whether
there is such a file is not asked.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from callgate.permission.patterns import AnyPath
from callgate.types import ToolDefinition

__all__ = ["SENSITIVE", "is_sensitive", "leaves", "paths_in", "sensitive_path"]

SENSITIVE: tuple[str, ...] = (
    # Settings that hold secrets.
    ".env*", "*.env", ".envrc", "credentials", "credentials.*", "*credentials*.json", "secrets", "secrets.*", "secret.*",
    "*secret.json", "*secrets.json", "*secret.yaml", "*secrets.yaml", "*secret.yml", "*secrets.yml", "*secret.toml",
    "*secrets.toml", "*secret.txt", "*secrets.txt", "client_secret*.json", "*service-account*.json",
    "*service_account*.json", "*.tfstate", "*.tfstate.*", "*.tfvars",
    ".netrc", "_netrc", ".npmrc", ".yarnrc.yml", ".pypirc", ".git-credentials", ".dockercfg", ".pgpass",
    ".my.cnf", ".mylogin.cnf", ".htpasswd", ".s3cfg", ".boto", ".vault-token", ".terraformrc", "**/.m2/settings.xml",
    "**/.cargo/credentials*", "**/.gem/credentials", "**/.composer/auth.json", "wp-config.php", "token.json",
    # Keys.
    "*.pem", "*.key", "*.p12", "*.pfx", "*.p8", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.ovpn", "*.gpg", "*.asc",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*_rsa", "*_dsa", "*_ecdsa", "*_ed25519", "authorized_keys",
    "known_hosts", "wallet.dat",
    # Folders of secrets.
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", "**/.config/gcloud", ".gcloud", ".password-store",
    "**/.config/gh",
    # What could make others run code, or tells what was run.
    ".git", ".bash_history", ".zsh_history", ".python_history", ".psql_history", ".mysql_history",
    # What a system keeps for itself, and the short names that one file system has for the above.
    "//etc/shadow", "//etc/gshadow", "//etc/sudoers", "//proc", "env~?*", "ssh~?*", "git~?*", "aws~?*",
)  # fmt: skip
"""Patterns of files that are asked about whatever the rules and the mode say, and that no search looks into unasked."""

# What a file tool is given beside names of files. Everything else of it is taken for one: better a question too many.
_CONTENT = frozenset({
    "content", "contents", "text", "data", "body", "old", "new", "old_string", "new_string", "old_str", "new_str", "replace",
    "replacement", "search", "instruction", "description", "query", "encoding", "mode", "comment", "message", "reason",
    "regex", "lines", "insert_text", "diff", "patch", "command",
})  # fmt: skip
# In tools of others only what is called like a file is taken for one.
_FILE_WORDS = ("path", "file", "dir", "folder", "uri", "source", "destination", "target", "cwd", "root")


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every single value in a value, as text, with the name that stands nearest above it."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[Any, Any]", value).items():
            yield from leaves(item, str(key))
    elif isinstance(value, Sequence):
        for item in cast("Sequence[Any]", value):
            yield from leaves(item, name)
    else:
        yield name, json.dumps(value, default=repr)


def paths_in(definition: ToolDefinition, args: Mapping[str, Any]) -> list[str]:
    """The arguments that name files: all of a file tool that are not plainly something else; of others, by their names."""
    names = _CONTENT if definition.kind == "file" else frozenset[str]()
    found = [(name.lower(), text) for name, text in leaves(args)]
    if definition.kind == "file":
        return [text for name, text in found if name not in names and not _is_plain_number(text)]
    return [text.removeprefix("file://") for name, text in found if any(word in name for word in _FILE_WORDS)]


def sensitive_path(definition: ToolDefinition, args: Mapping[str, Any], patterns: tuple[str, ...] = SENSITIVE) -> str | None:
    """The first argument that names a sensitive file; None if there is none, or if the tool is the program's own."""
    if definition.kind not in ("file", "mcp", "worker") or not patterns:
        return None
    is_sensitive = _matcher(patterns)
    return next((path for path in paths_in(definition, args) if is_sensitive(path)), None)


def is_sensitive(path: str) -> bool:
    """True if a path is likely to hold secrets or give power: `.env`, keys, `.ssh/` and the others of `SENSITIVE`."""
    return _matcher(SENSITIVE)(path)


@functools.lru_cache(maxsize=16)
def _matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    return AnyPath(patterns).wide


def _is_plain_number(text: str) -> bool:
    return text in ("true", "false", "null") or text.lstrip("-").replace(".", "", 1).isdigit()
