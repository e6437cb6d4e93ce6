"""Names of fields and environment variables whose value is a secret, whatever it looks like. Pure."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping

__all__ = ["KEYED", "KEY_WORDS", "environment_secrets", "is_number", "is_secret_name", "letters_of", "may_be_count"]

KEY_WORDS = (
    "password", "passwd", "passphrase", "passcode", "pwd", "secret", "token", "apikey", "accesskey", "privatekey",
    "signingkey", "encryptionkey", "authkey", "authorization", "credential", "cookie", "bearer", "sessionid", "sessionkey",
    "connectionstring", "clientsecret", "pincode", "cardnumber", "mnemonic", "seedphrase", "webhookurl", "recoverycode",
    "backupcode", "recoveryphrase", "presharedkey",
)  # fmt: skip
"""Names of fields, without case and punctuation, whose value is a secret whatever it looks like."""

# Too short to be looked for inside of other names; as names, and some of them as words of a name.
_SHORT_NAMES = frozenset({
    "auth", "pass", "pin", "pat", "pats", "pw", "psk", "jwt", "sig", "signature", "otp", "totp", "cvv", "cvc", "ssn",
    "dsn", "iban",
})  # fmt: skip
_SHORT_WORDS = frozenset({"auth", "pass", "pat", "pats", "pw", "psk", "jwt", "otp", "totp", "pwd", "cred", "creds", "dsn"})
KEYED = (
    r"(?:ssh|master|api|access|private|signing|encrypt(?:ion)?|decrypt(?:ion)?|auth|account|storage|service|deploy|client|"
    r"shared|root|admin|secret|host|hmac|aes|rsa|gpg|pgp|license|session|crypto|cipher|wrapping|kms|vault|openai|gemini|"
    r"google|anthropic|azure|aws|gcp|github|gitlab|stripe|db|database|server|subscription|function)"
)
"""A pattern for the words before `key` that make it a secret."""
_KEY_NAME = re.compile(rf"{KEYED}keys?$")
# `max_tokens` and its like count tokens; they are none. `cached_token` may be either: its value decides.
_COUNT = re.compile(
    r"^(?:max|min|num|total|count|input|output|prompt|completion|cached?|thoughts?|thinking|reasoning|candidates?|used|"
    r"remaining|budget|avg|mean)[a-z]{0,40}tokens?[a-z]{0,20}$"
)
_ABOUT_TOKENS = re.compile(r"token(?:count|limit|budget|izer|type|usage)|^tokensper")
_NOT_NAME = re.compile(r"[^a-z0-9]+")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# Names of the environment that hold a place or a number, although their words are those of secrets.
_PLACES = frozenset({"PWD", "OLDPWD", "XDG_SESSION_ID", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "XAUTHORITY"})


def letters_of(name: str) -> str:
    """The name in small letters and digits alone."""
    return _NOT_NAME.sub("", name.lower())


@functools.lru_cache(maxsize=4_096)
def is_secret_name(name: str) -> bool:
    """True if what stands under this name is a secret, whatever it looks like."""
    plain = letters_of(name)
    if _COUNT.search(plain) or _ABOUT_TOKENS.search(plain) or plain == "tokens":
        return False
    if any(word in plain for word in KEY_WORDS) or plain in _SHORT_NAMES or _KEY_NAME.search(plain):
        return True
    return not _SHORT_WORDS.isdisjoint(word.lower() for word in _WORD.findall(name))


@functools.lru_cache(maxsize=4_096)
def may_be_count(name: str) -> bool:
    """True if the name is that of a number of tokens: a text under it that is no number is a secret all the same."""
    plain = letters_of(name)
    return plain == "tokens" or (_COUNT.search(plain) is not None and _ABOUT_TOKENS.search(plain) is None)


def is_number(text: str) -> bool:
    """True if a text is a number, or nothing."""
    return not text.strip("0123456789.,_ kKM")


def environment_secrets(environment: Mapping[str, str]) -> list[str]:
    """The secrets among the variables of an environment. The path of a file is a place, whatever its variable is called."""
    named = [
        value
        for name, value in environment.items()
        if name not in _PLACES and (is_secret_name(name) or (may_be_count(name) and not is_number(value)))
    ]
    return [value for value in named if not (value.startswith("/") and os.path.exists(value))]
