"""Secrets out: by the name of the field they stand in, by their shape, and by being known. Pure, and linear in time.

Values come in and go out with every secret in them replaced by what it was. Nothing is ever put back, so what is doubtful is
replaced too: a log can do without it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from callgate.config.encoded_secrets import SecretNeedles
from callgate.config.known_secrets import CHARS_MIN, known_secrets, known_version
from callgate.config.secret_names import (
    KEY_WORDS,
    KEYED,
    environment_secrets,
    is_number,
    is_secret_name,
    letters_of,
    may_be_count,
)
from callgate.config.spread_secrets import hidden_items, is_spread_over

__all__ = ["KEY_WORDS", "SHAPES", "Redactor", "environment_secrets", "is_secret_name"]

TEXT_CHARS_MAX = 2_000
"""A longer text is logged as its beginning, its length and its hash."""
HEAD_CHARS = 200
REMEMBERED_CHARS_MAX = 200
DEPTH_MAX = 20
PIECES_MIN = 4
"""With fewer items, a table does not spell a secret out."""

_PLURAL = re.compile(r"tokens$")
_FLAG = re.compile(r"-{0,2}[A-Za-z][A-Za-z0-9_.-]{1,60}:?")
# Under these names a table says what its value is: {"name": "Authorization", "value": "..."}.
_NAMING = frozenset({"name", "key", "header", "field", "param", "parameter", "variable", "label", "k", "id"})
_NAMED = frozenset({"value", "values", "val", "v", "content", "text", "data", "default"})
# Every shape begins with fixed characters and is bounded, or begins where a word does: no text makes matching slow.
_B64 = r"[A-Za-z0-9+/]"
_URL64 = r"[A-Za-z0-9_-]"
_SECRET_WORDS = (
    "pass", "pwd", "secret", "token", "key", "auth", "credential", "cookie", "signature", "session", "_pat",
)  # fmt: skip
_SPOKEN = r"(?:pass(?:word|phrase|code|wort)|passwd|pwd|secret|token|(?:api|access|secret)[ _-]?key)"
# Words have no digits among their letters.
_LIKELY = r"(?=[^\s@]{0,60}[0-9])(?=[^\s@]{0,60}[A-Za-z])"
SHAPES: dict[str, tuple[tuple[str, ...], str]] = {
    "private key": (
        ("-----BEGIN",),
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END [A-Z0-9 ]{0,60}-----|\Z)",
    ),
    "aws key id": (
        ("AKIA", "ASIA", "AGPA", "AIDA", "AROA", "AIPA", "ANPA", "ANVA", "ABIA", "ACCA"),
        r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA|AIPA|ANPA|ANVA|ABIA|ACCA)[A-Z0-9]{16}\b",
    ),
    "google api key": (("AIza",), rf"AIza{_URL64}{{35}}"),
    "google auth key": (("AQ.",), rf"\bAQ\.{_URL64}{{20,512}}"),
    "key in a url": (
        ("key=", "token=", "secret=", "password="),
        r"(?<=[?&])(?:[a-z_]{0,20}key|[a-z_]{0,20}token|[a-z_]{0,20}secret|password)=[^&\s\"'<>]{8,1024}",
    ),
    "google oauth token": (("ya29.",), rf"ya29\.{_URL64}{{20,512}}"),
    "google oauth client secret": (("GOCSPX-",), rf"GOCSPX-{_URL64}{{20,64}}"),
    "google refresh token": (("1//0",), rf"\b1//0{_URL64}{{20,256}}"),
    "github token": (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"\bgh[pousr]_[A-Za-z0-9]{20,255}"),
    "github fine-grained token": (("github_pat_",), r"\bgithub_pat_[A-Za-z0-9_]{20,255}"),
    "gitlab token": (
        ("glpat-", "glptt-", "gldt-", "glrt-", "glcbt-", "glsoat-", "glft-", "glimt-", "glagent-", "gloas-"),
        rf"\bgl(?:pat|ptt|dt|rt|cbt|soat|ft|imt|agent|oas)-{_URL64}{{16,255}}",
    ),
    "anthropic key": (("sk-ant-",), rf"\bsk-ant-{_URL64}{{16,255}}"),
    "openai key": (("sk-",), rf"\bsk-(?:proj-|svcacct-|admin-)?{_URL64}{{16,255}}"),
    "groq key": (("gsk_",), r"\bgsk_[A-Za-z0-9]{20,128}"),
    "hugging face token": (("hf_", "api_org_"), r"\b(?:hf|api_org)_[A-Za-z0-9]{20,128}"),
    "replicate token": (("r8_",), r"\br8_[A-Za-z0-9]{20,64}"),
    "perplexity key": (("pplx-",), r"\bpplx-[A-Za-z0-9]{20,128}"),
    "xai key": (("xai-",), r"\bxai-[A-Za-z0-9]{20,128}"),
    "slack token": (("xox",), r"\bxox[abeoprs]-[A-Za-z0-9-]{10,255}"),
    "slack app token": (("xapp-",), r"\bxapp-[A-Za-z0-9-]{10,255}"),
    "slack webhook": (("hooks.slack.com/",), r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_+-]{20,255}"),
    "discord webhook": (("/api/webhooks/",), rf"discord(?:app)?\.com/api/webhooks/[0-9]{{10,30}}/{_URL64}{{20,128}}"),
    "discord token": ((".",), rf"\b[MNO]{_URL64}{{22,27}}\.{_URL64}{{6,7}}\.{_URL64}{{27,45}}\b"),
    "telegram token": ((":AA",), rf"\b[0-9]{{8,10}}:AA{_URL64}{{32,34}}\b"),
    "stripe key": (("_live_", "_test_"), r"\b(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{10,255}"),
    "stripe webhook secret": (("whsec_",), r"\bwhsec_[A-Za-z0-9+/=]{16,128}"),
    "square token": (("sq0", "EAAA"), rf"\b(?:sq0atp|sq0csp|EAAA)-?{_URL64}{{20,128}}"),
    "twilio key": (("SK", "AC"), r"\b(?:SK|AC)[0-9a-f]{32}\b"),
    "sendgrid key": (("SG.",), rf"\bSG\.{_URL64}{{16,64}}\.{_URL64}{{16,128}}"),
    "mailgun key": (("key-",), r"\bkey-[0-9a-f]{32}\b"),
    "mailchimp key": (("-us",), r"\b[0-9a-f]{32}-us[0-9]{1,2}\b"),
    "npm token": (("npm_",), r"\bnpm_[A-Za-z0-9]{30,64}"),
    "pypi token": (("pypi-",), rf"\bpypi-{_URL64}{{50,255}}"),
    "rubygems key": (("rubygems_",), r"\brubygems_[0-9a-f]{40,64}"),
    "docker token": (("dckr_",), rf"\bdckr_(?:pat|oat)_{_URL64}{{20,128}}"),
    "digitalocean token": (("_v1_",), r"\bdo[opr]_v1_[0-9a-f]{40,128}"),
    "heroku key": (("HRKU-",), rf"\bHRKU-{_URL64}{{30,128}}"),
    "cloudflare key": (("v1.0-",), r"\bv1\.0-[0-9a-f]{20,40}-[0-9a-f]{100,160}"),
    "azure storage key": (("AccountKey=",), rf"AccountKey={_B64}{{40,128}}={{0,2}}"),
    "azure sas signature": (("sig=",), r"[?&]sig=[A-Za-z0-9%+/=_-]{20,255}"),
    "azure client secret": (("Q~",), r"\b[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}"),
    "databricks token": (("dapi",), r"\bdapi[0-9a-f]{32}(?:-[0-9])?\b"),
    "datadog or new relic key": (("NRAK-", "NRJS-", "NRII-", "NRRA-"), r"\bNR(?:AK|JS|II|RA)-[A-Za-z0-9_-]{16,64}"),
    "grafana token": (("glsa_", "glc_"), rf"\bgl(?:sa|c)_{_URL64}{{20,255}}={{0,2}}"),
    "linear key": (("lin_",), r"\blin_(?:api|oauth)_[A-Za-z0-9]{20,128}"),
    "notion token": (("secret_", "ntn_"), r"\b(?:secret|ntn)_[A-Za-z0-9]{30,64}"),
    "airtable token": (("pat",), r"\bpat[A-Za-z0-9]{14}\.[0-9a-f]{40,80}"),
    "atlassian token": (("ATATT3",), rf"\bATATT3{_URL64}{{20,255}}={{0,2}}[A-Z0-9]{{0,8}}"),
    "shopify token": (("shp",), r"\bshp(?:at|ca|pa|ss|tka)_[0-9a-fA-F]{32}"),
    "hashicorp vault token": (("hvs.", "hvb.", "hvr."), rf"\bhv[sbr]\.{_URL64}{{20,255}}"),
    "terraform token": ((".atlasv1.",), rf"\b[A-Za-z0-9]{{14}}\.atlasv1\.{_URL64}{{40,128}}"),
    "planetscale token": (("pscale_",), rf"\bpscale_(?:tkn|pw|oauth)_{_URL64}{{20,128}}"),
    "supabase key": (("sbp_",), r"\bsbp_[0-9a-f]{40}"),
    "doppler token": (("dp.",), r"\bdp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9_.-]{20,128}"),
    "age key": (("AGE-SECRET-KEY-1",), r"\bAGE-SECRET-KEY-1[A-Z0-9]{40,70}"),
    "json web token": (("eyJ",), rf"(?<![A-Za-z0-9_.-])eyJ{_URL64}{{6,8192}}\.{_URL64}{{4,8192}}(?:\.{_URL64}{{0,8192}})?"),
    "password in a url": (("://",), r"(?<=://)[^\s/:@]{0,256}:[^\s/@]{1,256}(?=@)"),
    "password in a connection string": (
        ("@",),
        r"(?<![\w/:@.+-])(?!(?:mailto|sips?|xmpp|acct|ssh|git):)[\w.-]{1,64}:(?:[^\s@/:]{1,256}(?=@(?:tcp|unix)\()|"
        rf"{_LIKELY}[^\s@/:]{{6,128}}(?=@[A-Za-z0-9.-]{{1,253}}(?::[0-9]|/)))",
    ),
    "password of curl": (
        ("curl",),
        r"(?<![\w-])(?P<kept>(?:-u|-U|--user|--proxy-user)[ \t=]{0,4}\\{0,15}[\"']?[^\s:\"'\\]{1,128}:)"
        r"(?!//|\[redacted)[^\s\"'\\]{1,256}",
    ),
    "password of mysql": (("mysql", "mariadb"), r"(?<!\S)(?P<kept>-p)(?!ort\b|\[redacted)[^\s\"'\\-][^\s\"'\\]{3,255}"),
    "password of a client": (
        ("sshpass", "redis-cli", "mongosh", "mongodump", "ldapsearch"),
        r"(?<!\S)(?P<kept>-[apw][ \t]{1,4}\\{0,15}[\"']?)(?!-|\[redacted)[^\s\"'\\]{6,256}",
    ),
    # These are looked for in any case, by words in small letters.
    "bearer token": (
        ("bearer", "basic", "token", "apikey", "digest"),
        r"(?i:\b(?:bearer|basic|token|apikey|digest))[ \t]+[A-Za-z0-9+/=_.~-]{12,4096}",
    ),
    "secret flag": (
        _SECRET_WORDS,
        r"(?i:(?<![\w-])--[a-z0-9-]{0,20}(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|api-?key|access-?key|"
        r"private-?key|auth|credentials?))[ \t]{1,4}(?!-|\\{0,15}[\"']?\[redacted)\\{0,15}[\"']?[^\s\"'\\]{3,4096}",
    ),
    "secret in a sentence": (
        _SECRET_WORDS,
        rf"(?P<kept>(?i:\b{_SPOKEN}[ \t]{{1,4}}(?:is|was|ist|lautet):?[ \t]{{1,4}})[\"'`“]?)"
        rf"(?!https?:){_LIKELY}[^\s\"'`”]{{6,256}}",
    ),
    "secret on the next line": (
        _SECRET_WORDS,
        rf"(?P<kept>(?i:\b{_SPOKEN}[ \t]{{0,4}}[:=]?[ \t]{{0,4}}[|>]?[ \t]{{0,4}}\r?\n[ \t]{{0,16}}))"
        rf"(?!https?:){_LIKELY}[^\s\"'`]{{6,256}}(?=[ \t]{{0,16}}(?:\r?\n|\Z))",
    ),
    "named secret": (
        _SECRET_WORDS,
        # Quotes may be escaped any number of times, as in JSON inside of JSON.
        rf"(?i:(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|{KEYED}[_-]?key|auth(?:orization)?|credentials?|cookie|"
        r"signature|session[_-]?id|_pat)[a-z0-9_-]{0,32}\\{0,15}[\"']?(?:[ \t]{0,4}(?:=>|[:=])[ \t]{0,4}\[?[ \t]{0,4}|>)"
        r"(?:(?:bearer|basic|token|digest)[ \t]{1,4})?)(?!\\{0,15}[\"']?\[redacted)"
        r"(?:[\"'](?:[^\"'\\\n]|\\.){3,4096}|\\{1,15}[\"'][^\"'\n]{3,4096}(?:(?<=\\\\\\)[\"'][^\"'\n]{0,4096}){0,8}|"
        r"[^\s\"'&,;)}\]\\]{3,4096})",
    ),
}
"""Name of a secret -> markers that every text with one holds, and its regular expression."""

_IN_ANY_CASE = ("bearer token", "secret flag", "secret in a sentence", "secret on the next line", "named secret")
_COMPILED = {name: re.compile(shape) for name, (_, shape) in SHAPES.items()}
# Nearly every text holds no secret, and looking for a few fixed characters first is what makes it cheap to see that.
_MARKERS = [(marker, name) for name, (markers, _) in SHAPES.items() if name not in _IN_ANY_CASE for marker in markers]
_WORDS = re.compile("|".join(sorted({word for name in _IN_ANY_CASE for word in SHAPES[name][0]})))
_CLIENT_FLAGS = {
    "curl": ("-u", "-U", "--user", "--proxy-user"), "sshpass": ("-p",), "redis-cli": ("-a",), "mongosh": ("-p",),
    "mongodump": ("-p",), "ldapsearch": ("-w",),
}  # fmt: skip
_CLIENTS = re.compile("curl|mysql|mariadb|sshpass|redis-cli|mongosh|mongodump|ldapsearch")
RUN_CHARS_MIN = 14
"""No secret that stands by itself has fewer characters in a row without a space."""


class Redactor:
    """Take secrets out of values: those that the program knows, those of the environment, and `known` besides."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._own = [*environment_secrets(os.environ), *known]
        self._version = -1
        self._renew()

    def _renew(self) -> None:
        """Take in the secrets that the program has learned since."""
        self._version = known_version()
        secrets = {text for text in (*self._own, *known_secrets()) if len(text) >= CHARS_MIN}
        self._needles = SecretNeedles(secrets)
        # Ids, names and reasons come again and again.
        self._remembered = functools.lru_cache(maxsize=4_096)(self._cleaned)
        self._field = functools.lru_cache(maxsize=4_096)(self._field_of)

    def text(self, text: str) -> str:
        """The text without its secrets."""
        if self._version != known_version():
            self._renew()
        return self._remembered(text) if len(text) <= REMEMBERED_CHARS_MAX else self._cleaned(text)

    def _cleaned(self, text: str) -> str:
        has_word = _WORDS.search(text.lower()) is not None
        has_run = len(text) >= RUN_CHARS_MIN and max(map(len, text.split()), default=0) >= RUN_CHARS_MIN
        text = self._needles.redact(text, encoded=len(text) >= CHARS_MIN)
        if has_word or has_run or "://" in text or _CLIENTS.search(text):
            for name in dict.fromkeys([name for marker, name in _MARKERS if marker in text]):
                text = _COMPILED[name].sub(_REPLACED[name], text)
        if has_word:
            for name in _IN_ANY_CASE:
                text = _COMPILED[name].sub(_REPLACED[name], text)
        return text

    def short_text(self, text: str) -> str:
        """The text without its secrets, and cut if it is long: with its length and its hash."""
        if len(text) <= TEXT_CHARS_MAX:
            return self.text(text)
        # Secrets that begin in what is shown end in what is looked through, or are taken out as far as that reaches.
        clean = self.text(text[:TEXT_CHARS_MAX])
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{clean[:HEAD_CHARS]}... [{len(text)} characters, sha256 {digest}]"

    def value(self, value: Any, *, depth: int = 0) -> Any:
        """The JSON value without its secrets, in names, in texts, and under names that say so."""
        kind = cast("type[Any]", type(value))
        if kind is str:
            return self.text(value) if len(value) <= REMEMBERED_CHARS_MAX else self.short_text(value)
        if kind in _PLAIN:
            return value
        if depth >= DEPTH_MAX:
            return "[too deep]"
        if kind is dict:
            return self._table(value, depth)
        if isinstance(value, (list, tuple)):
            items = cast("Sequence[Any]", value)
            if not items:
                return []
            # `--password s3cret` and ["Authorization", "..."]: the word before says what it is.
            flags = _client_flags(items)
            hidden = [False, *(isinstance(item, str) and (item in flags or _is_secret_flag(item)) for item in items[:-1])]
            return self._unless_spread(
                [
                    _HIDDEN if hide and _is_given(item) else self.value(item, depth=depth + 1)
                    for item, hide in zip(items, hidden[: len(items)], strict=True)
                ]
            )
        if isinstance(value, Mapping):
            return self._table(cast("Mapping[Any, Any]", value), depth)
        return self.short_text(str(value))

    def _table(self, table: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        if self._version != known_version():
            self._renew()
        fields = [(self._field(str(key)), item) for key, item in table.items()]
        naming = [item for field, item in fields if field.is_naming]
        says_secret = any(isinstance(item, str) and _is_secret_flag(item) for item in naming) if naming else False
        cleaned: dict[str, Any] = {}
        for field, item in fields:
            if field.is_secret or (says_secret and field.is_named):
                cleaned[field.name] = item if field.is_plural and _is_count(item) else _hidden(item)
            elif field.may_be_count and _holds_text(item):
                cleaned[field.name] = _HIDDEN
            else:
                cleaned[field.name] = item if type(item) in _PLAIN else self.value(item, depth=depth + 1)
        # A record has other tables in it; one of single values may spell something out.
        is_flat = len(cleaned) >= PIECES_MIN and not any(isinstance(item, (list, dict)) for item in cleaned.values())
        return self._unless_spread(cleaned) if is_flat else cleaned

    def _unless_spread(self, cleaned: Any) -> Any:
        """The list or table, or what can be shown of it if its items together hold a known secret."""
        return hidden_items(cleaned) if is_spread_over(self._needles, cleaned) else cleaned

    def _field_of(self, key: str) -> _Field:
        name, lower = self.text(key), key.lower()
        return _Field(
            name,
            is_secret=is_secret_name(key) or name.lower() == "tokens",
            is_plural=_PLURAL.search(letters_of(key)) is not None,
            is_naming=lower in _NAMING,
            is_named=lower in _NAMED,
            may_be_count=may_be_count(name),
        )


class _Field(NamedTuple):
    """The name of a field, without its secrets, and what it says of the field's value."""

    name: str
    is_secret: bool
    is_plural: bool
    """`tokens` may be a number of them."""
    is_naming: bool
    """The value may say what another value of the same table is."""
    is_named: bool
    """Another value of the same table may say what this one is."""
    may_be_count: bool


_HIDDEN = "[redacted]"
_PLAIN = frozenset({bool, int, float, type(None)})


def _hidden(value: Any) -> Any:
    return value if value is None or isinstance(value, bool) else _HIDDEN


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, float))


def _holds_text(value: Any) -> bool:
    """True for a text that is no number, and for a list with one."""
    if isinstance(value, (list, tuple)):
        return any(isinstance(item, str) and _holds_text(item) for item in cast("Sequence[Any]", value))
    return isinstance(value, str) and not is_number(value)


def _is_given(value: Any) -> bool:
    """True for any text but an empty one, and for a list with words."""
    return value != "" if isinstance(value, str) else _holds_text(value)


def _is_secret_flag(text: str) -> bool:
    return _FLAG.fullmatch(text) is not None and is_secret_name(text.strip("-:"))


def _client_flags(items: Sequence[Any]) -> tuple[str, ...]:
    """The flags of a command that come before a password."""
    programs = (item.rpartition("/")[2] for item in items[:3] if isinstance(item, str))
    return next((_CLIENT_FLAGS[program] for program in programs if program in _CLIENT_FLAGS), ())


def _unnamed(found: re.Match[str]) -> str:
    """Keep the name of a secret and drop its value."""
    separator = re.search(r"=>|[:=>]", found[0])
    assert separator is not None
    if _is_ordinary(found, separator):
        return found[0]
    return f"{found[0][: separator.end()]}[redacted]"


def _is_ordinary(found: re.Match[str], separator: re.Match[str]) -> bool:
    """True if the name is another word (`author`, `compass`), or the value a word or a number of tokens."""
    before = _NAME_BEFORE.search(found.string, max(0, found.start() - 40), found.start())
    name = (before[0] if before else "") + found[0][: separator.start()].strip("\\\"' \t")
    value = found[0][separator.end() :].strip()
    if value in _NO_SECRETS or (value.isdecimal() and may_be_count(name)):
        return True
    return _OTHER_WORDS.search(name) is not None and not is_secret_name(_OTHER_WORDS.sub("", name))


_NAME_BEFORE = re.compile(r"[A-Za-z0-9_-]{1,40}\Z")
_NO_SECRETS = frozenset({"true", "false", "True", "False", "None", "null"})
_OTHER_WORDS = re.compile(
    r"(?i)authors?(?![a-z])|authorit(?:y|ies)|authentic(?:ity)?(?![a-z])|passengers?|passages?|passports?|passive|passion|"
    r"(?:com|by|tres|sur|over|under|encom)pass(?![a-z])|secretar(?:y|ies|ial|iat)|tokeni[sz]ers?"
)
"""Words that have the name of a secret in them, and are none."""


def _unflagged(found: re.Match[str]) -> str:
    return f"{found[0].split()[0]} {_HIDDEN}"


_REPLACED: dict[str, Any] = (
    {name: f"[redacted: {name}]" for name in SHAPES}
    | {
        "named secret": _unnamed,
        "key in a url": _unnamed,
        "secret flag": _unflagged,
    }
    | {name: rf"\g<kept>{_HIDDEN}" for name, (_, shape) in SHAPES.items() if "(?P<kept>" in shape}
)
