"""The access file: named tokens and an identity provider in TOML, read again when it changes.

Only hashes of tokens are in it. When it is read again, an entry that is invalid is reported and refused like one that is
gone, and the others hold; a file that is not TOML, or that others can change, is reported, and what it said before still
holds; a file that is gone, or that this process may not read, lets nobody in.
"""

from __future__ import annotations

import datetime
import errno
import hashlib
import logging
import os
import re
import secrets
import stat
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from callgate.errors import UsageError
from callgate.server.identity import Principal, Quota, rights_of
from callgate.server.oidc import Oidc, oidc_of

__all__ = ["AccessFile", "new_token", "token_hash"]

logger = logging.getLogger("callgate.server")

_Stamp: TypeAlias = "tuple[int, ...]"

LOOK_S = 0.5
"""Minimum seconds between two looks at the file."""
NAME = re.compile(r"[A-Za-z0-9._@+-]{1,100}")
_HASH = re.compile(r"[0-9a-f]{64}")
_SHORT_OF = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors that are about this process or machine, and not about the file."""
_QUOTAS = {"requests_per_minute": int, "runs": int, "tokens_per_day": int, "cost_per_day": (int, float)}
_KEYS = frozenset({"sha256", "rights", "owner", "models", "expires", *_QUOTAS})


@dataclass(frozen=True, slots=True)
class _Named:
    principal: Principal
    expires: datetime.datetime | None


def token_hash(token: str) -> str:
    """Return the hash by which a token is kept. Tokens are random, so that nothing slower is needed."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def new_token() -> tuple[str, str]:
    """Return a new token and its hash."""
    token = f"cg_{secrets.token_urlsafe(24)}"
    return token, token_hash(token)


class AccessFile:
    """Principals of an access file.

    Raises:
        UsageError: the file cannot be read, others could change it, or it is invalid.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._named: dict[str, _Named] = {}
        self._oidc: Oidc | None = None
        self._trouble: str | None = None
        self._looked_s = time.monotonic()
        self._seen: _Stamp | None = self._stamp()
        """The file as it was when it was last read; None if it has to be read again."""
        if mistakes := self._read():
            raise UsageError(mistakes[0])

    @property
    def trouble(self) -> str | None:
        """A sentence on what is wrong with the file now; None if nothing is."""
        self._look()
        return self._trouble

    @property
    def oidc(self) -> Oidc | None:
        """The identity provider of the file, if it names one."""
        self._look()
        return self._oidc

    async def principal(self, token: str) -> Principal | None:
        """Return the principal that a token stands for; None if there is none."""
        self._look()
        found = self._named.get(token_hash(token))
        if found is not None:
            is_over = found.expires is not None and found.expires <= datetime.datetime.now(datetime.UTC)
            return None if is_over else found.principal
        return await self._oidc.principal(token) if self._oidc is not None else None

    def _stamp(self) -> _Stamp | None:
        """Return what changes with the content of the file, and with the right to change it."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        place = (found.st_dev, found.st_ino, found.st_size)
        return (*place, found.st_mtime_ns, found.st_ctime_ns, found.st_mode, found.st_uid, found.st_gid)

    def _look(self) -> None:
        now = time.monotonic()
        if now < self._looked_s + LOOK_S:
            return
        self._looked_s = now
        stamp = self._stamp()
        if stamp is not None and stamp == self._seen:
            return
        self._seen = stamp
        found = self._reread()
        if found is not None and found != self._trouble:
            logger.error("%s", found)
        self._trouble = found

    def _reread(self) -> str | None:
        """Take in what the file says now; return what is wrong with it."""
        try:
            mistakes = self._read()
        except UsageError as error:
            cause = error.__cause__
            if isinstance(cause, OSError):
                self._seen = None  # It can be over without a change of the file.
                if cause.errno not in _SHORT_OF:
                    self._named, self._oidc = {}, None
                    why = "is gone" if isinstance(cause, FileNotFoundError) else f"cannot be read ({cause.strerror})"
                    return f"the access file {self.path} {why}: every request is refused"
            return f"the access file was not read again, and what it said before still holds, revoked tokens too: {error}"
        logger.info("the access file %s was read again: %d tokens", self.path, len(self._named))
        if mistakes:
            return f"the access file was read again without its invalid entries, which are refused: {'; '.join(mistakes)}"
        return None

    def _read(self) -> list[str]:
        """Take in the valid entries of the file; return the mistakes in the others.

        Raises:
            UsageError: the file cannot be read as a whole; nothing was taken in.
        """
        table = _parsed(self.path)
        mistakes = [
            f"{self.path}: there is no table {name!r}; there are [tokens.NAME] and [oidc]"
            for name in sorted(set(table) - {"tokens", "oidc"})
        ]
        tokens = table.get("tokens", {})
        if not isinstance(tokens, dict):
            mistakes.append(f"{self.path}: write tokens as [tokens.NAME]")
            tokens = {}
        named: dict[str, _Named] = {}
        doubtful: set[str] = set()
        for name, fields in cast("dict[str, Any]", tokens).items():
            try:
                digest, entry = _entry(name, fields, f"{self.path}: [tokens.{name}]")
            except UsageError as error:
                mistakes.append(str(error))
                continue
            if digest in named:  # Which of them is meant nobody can tell.
                mistakes.append(f"{self.path}: {name!r} and {named[digest].principal.name!r} have the same token")
                doubtful.add(digest)
            named[digest] = entry
        oidc, known = table.get("oidc"), self._oidc
        try:
            self._oidc = None if oidc is None else oidc_of(oidc, f"{self.path}: [oidc]", known)
        except UsageError as error:
            mistakes.append(str(error))
            self._oidc = None
        self._named = {digest: entry for digest, entry in named.items() if digest not in doubtful}
        return mistakes


def _parsed(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            if os.name == "posix" and stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o022:
                raise UsageError(f"{path} can be changed by others: chmod 600 {path}")
            return tomllib.load(file)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"the access file {path} cannot be read: {error}") from error


def _entry(name: str, fields: object, where: str) -> tuple[str, _Named]:
    if not NAME.fullmatch(name):
        raise UsageError(f"{where}: a name has letters, digits and any of . _ @ + -")
    if not isinstance(fields, dict):
        raise UsageError(f"{where}: write it as a table")
    given = cast("dict[str, Any]", fields)
    if unknown := sorted(set(given) - _KEYS):
        raise UsageError(f"{where}: there is no key {unknown[0]!r}; there are {', '.join(sorted(_KEYS))}")
    digest, owner, models, expires = (given.get(key) for key in ("sha256", "owner", "models", "expires"))
    if not isinstance(digest, str) or not _HASH.fullmatch(digest):
        raise UsageError(f"{where}: sha256 must be 64 hexadecimal digits, as `callgate token new` prints them")
    if owner is not None and not (isinstance(owner, str) and NAME.fullmatch(owner)):
        raise UsageError(f"{where}: owner must be a name of letters, digits and any of . _ @ + -")
    if expires is not None and not isinstance(expires, datetime.date):
        raise UsageError(f"{where}: expires must be a date, such as 2027-01-31")
    principal = Principal(
        name=name,
        owner=owner or name,
        rights=rights_of(given.get("rights", ["chat"]), where),
        quota=quota_of(given, where),
        models=patterns_of(models, where),
    )
    return digest, _Named(principal, _moment(expires))


def _moment(day: datetime.date | None) -> datetime.datetime | None:
    if day is None or isinstance(day, datetime.datetime):
        return day if day is None or day.tzinfo is not None else day.replace(tzinfo=datetime.UTC)
    return datetime.datetime.combine(day, datetime.time(), datetime.UTC)


def quota_of(fields: Mapping[str, Any], where: str) -> Quota:
    """Read limits.

    Raises:
        UsageError: one of them is no number.
    """
    for key, kind in _QUOTAS.items():
        value = fields.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, kind) or value < 0):
            raise UsageError(f"{where}: {key} must be a number, 0 or more")
    return Quota(**{key: fields[key] for key in _QUOTAS if key in fields})


def patterns_of(value: object, where: str) -> tuple[str, ...]:
    """Read patterns of models.

    Raises:
        UsageError: they are not a list of texts.
    """
    given = cast("list[object]", value if value is not None else [])
    if not isinstance(given, list) or not all(isinstance(one, str) and one for one in given):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"{where}: models must be a list of names or patterns, such as 'gemini:*'")
    return tuple(cast("list[str]", given))
