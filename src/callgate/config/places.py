"""Locations of settings: the user's file, the project's file, and the state folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["PROJECT_NAMES", "config_file", "project_file", "state_dir"]

PROJECT_NAMES = (".callgate.toml", "callgate.toml")


def config_file(env: Mapping[str, str]) -> Path:
    """The user's file, whether it exists or not: `CALLGATE_CONFIG`, else where the XDG rules put it."""
    if env.get("CALLGATE_CONFIG"):
        return Path(env["CALLGATE_CONFIG"]).expanduser().absolute()
    return Path(_base(env, "XDG_CONFIG_HOME", ".config")) / "callgate" / "config.toml"


def state_dir(env: Mapping[str, str]) -> str:
    """Return the folder for state that outlives the process."""
    return os.path.join(_base(env, "XDG_STATE_HOME", os.path.join(".local", "state")), "callgate")


def project_file(folder: Path) -> Path | None:
    """The project's file: in the folder, or in one above it up to the root of the repository that the folder is in."""
    folder = Path(os.path.realpath(folder))
    above = [folder, *folder.parents]
    root = next((index for index, one in enumerate(above) if (one / ".git").exists()), 0)
    found = (one / name for one in above[: root + 1] for name in PROJECT_NAMES)
    return next((path for path in found if path.is_file()), None)


def _base(env: Mapping[str, str], name: str, usual: str) -> str:
    base = env.get(name, "")
    return base if os.path.isabs(base) else os.path.join(os.path.expanduser("~"), usual)
