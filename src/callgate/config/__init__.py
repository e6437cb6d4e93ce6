"""Settings: files, environment and flags in, one frozen object out that knows where each value came from.

A word like `types`: pure, but for reading and writing the files of settings and the list of trusted folders. It knows the
names and the forms of settings and nothing of what is done with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callgate.lazy_names import lazy_names

if TYPE_CHECKING:
    from callgate.config.edit import with_value, without_value
    from callgate.config.loader import ConfigError, Settings, Value, load_settings, masked, parsed_text
    from callgate.config.places import config_file, project_file, state_dir
    from callgate.config.table import SETTINGS, Setting, setting_of
    from callgate.config.trust_store import is_trusted, trust, trusted_folders, untrust, write_atomically

__all__ = [
    "SETTINGS", "ConfigError", "Setting", "Settings", "Value", "config_file", "is_trusted", "load_settings", "masked",
    "parsed_text", "project_file", "setting_of", "state_dir", "trust", "trusted_folders", "untrust", "with_value",
    "without_value", "write_atomically",
]  # fmt: skip

__getattr__ = lazy_names(__name__, {
    "edit": ("with_value", "without_value"),
    "loader": ("ConfigError", "Settings", "Value", "load_settings", "masked", "parsed_text"),
    "places": ("config_file", "project_file", "state_dir"),
    "table": ("SETTINGS", "Setting", "setting_of"),
    "trust_store": ("is_trusted", "trust", "trusted_folders", "untrust", "write_atomically"),
})  # fmt: skip
