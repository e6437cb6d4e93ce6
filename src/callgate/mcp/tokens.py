"""The stored logins: in the keyring of the system if there is one, else in a file that its owner alone can read.

Addresses of servers come in, what is known of a login there goes out. Several processes may share the file: a change takes a
lock, reads what is there, and replaces the file as a whole. Of a login in the keyring the file holds the address only. What
a token is good for is the SDK's business. All of it may block, a keyring until a person has unlocked it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import os
import stat
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from callgate import strict_json
from callgate.config.known_secrets import remember_tokens
from callgate.errors import JsonError, UsageError
from callgate.types import JsonObject

__all__ = ["TokenFile", "default_place", "system_keyring"]

logger = logging.getLogger("callgate.mcp")

BYTES_MAX = 4 * 1024 * 1024
SERVICE = "callgate mcp"
"""The name of our entries in a keyring."""
_ELSEWHERE: JsonObject = {"keyring": True}
"""The row of a login that is in the keyring."""


def default_place(env: Mapping[str, str] = os.environ) -> Path:
    """The default path of the token file."""
    base = env.get("XDG_STATE_HOME", "")
    state = Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state"
    return state / "callgate" / "mcp-tokens.json"


def system_keyring() -> Any:
    """The keyring of the system, if the package `keyring` is installed and finds a real one; else None."""
    if importlib.util.find_spec("keyring") is None:
        return None
    try:
        backend: Any = cast("Any", importlib.import_module("keyring")).get_keyring()
        # The package's own files and stand-ins count for less than 1.
        return backend if backend.priority >= 1 else None
    except Exception as error:
        logger.warning("the keyring cannot be used: %s", error)
        return None


class TokenFile:
    """The stored logins, by the URL of the server."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = Path(path) if path is not None else default_place()
        self._keyring: Any = system_keyring()

    def read(self, url: str) -> JsonObject:
        """The stored login for the URL; empty if there is none.

        Raises:
            UsageError: the file cannot be used.
        """
        row: Any = self._rows().get(_key(url))
        return self._from_keyring(url) if row == _ELSEWHERE else cast("JsonObject", row) if isinstance(row, dict) else {}

    def update(self, url: str, **fields: Any) -> None:
        """Keep these fields beside those that are known.

        Raises:
            UsageError: the file cannot be used.
        """
        remember_tokens(fields)
        with self._locked():
            rows = self._rows()
            row = {**self.read(url), **fields}
            rows[_key(url)] = _ELSEWHERE if self._to_keyring(url, row) else row
            self._replace(rows)

    def forget(self, url: str) -> bool:
        """Forget a login; whether there was one.

        Raises:
            UsageError: the file cannot be used.
        """
        with self._locked():
            rows = self._rows()
            row = rows.pop(_key(url), None)
            if row == _ELSEWHERE:
                self._delete_from_keyring(url)
            if row is not None:
                self._replace(rows)
        return row is not None

    def _from_keyring(self, url: str) -> JsonObject:
        if self._keyring is None:
            raise UsageError(
                f"the login at {_key(url)} is kept in the keyring of the system, which is not there: install the package "
                "keyring and unlock it, or log in again after `callgate mcp logout`"
            )
        try:
            found: str | None = self._keyring.get_password(SERVICE, _key(url))
            row: Any = strict_json.parse(found) if found else {}
        except Exception as error:  # Each backend has exceptions of its own.
            raise UsageError(f"the keyring cannot be read: {error}") from error
        remember_tokens({url: row})
        return cast("JsonObject", row) if isinstance(row, dict) else {}

    def _to_keyring(self, url: str, row: JsonObject) -> bool:
        """Keep the login in the keyring; False if there is none that takes it."""
        if self._keyring is None:
            return False
        try:
            self._keyring.set_password(SERVICE, _key(url), strict_json.dump(row).decode())
        except Exception as error:
            logger.warning("the keyring does not take a login, so it is kept in %s: %s", self.path, error)
            return False
        return True

    def _delete_from_keyring(self, url: str) -> None:
        if self._keyring is not None:
            with contextlib.suppress(Exception):  # It may have been deleted there already.
                self._keyring.delete_password(SERVICE, _key(url))

    def _rows(self) -> JsonObject:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise UsageError(f"the tokens in {str(self.path)!r} cannot be read: {error.strerror or error}") from error
        with open(descriptor, "rb") as file:
            known = os.fstat(descriptor)
            if not stat.S_ISREG(known.st_mode):
                raise UsageError(f"{str(self.path)!r} is not a file, so no tokens are read from it: move it away")
            if stat.S_IMODE(known.st_mode) & 0o077 and hasattr(os, "fchmod"):
                os.fchmod(descriptor, 0o600)  # Somebody else opened it up; from here on it is closed again.
            data = file.read(BYTES_MAX)
        try:
            read: Any = strict_json.parse(data)
        except JsonError as error:
            raise UsageError(f"{str(self.path)!r} is not a file of tokens: {error}; delete it and log in again") from error
        rows: Any = cast("JsonObject", read).get("servers") if isinstance(read, dict) else None
        remember_tokens(rows)
        return dict(cast("JsonObject", rows)) if isinstance(rows, dict) else {}

    def _replace(self, rows: JsonObject) -> None:
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(strict_json.dump({"version": 1, "servers": rows}))
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, self.path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside)
            raise

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.path.with_name(f"{self.path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise UsageError(f"tokens cannot be kept in {str(self.path)!r}: {error.strerror or error}") from error
        try:
            if sys.platform != "win32":
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _key(url: str) -> str:
    """The address without a name and password, which are none of this file's business."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
