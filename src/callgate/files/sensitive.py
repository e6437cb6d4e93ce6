"""Which paths are likely to hold secrets.

A path in, yes or no out; upper and lower case do not count, because on some systems they are the same file.
"""

from __future__ import annotations

import re

__all__ = ["is_sensitive"]

_FOLDERS = frozenset({".ssh", ".aws", ".gnupg", ".kube", ".docker", ".azure", ".gcloud", ".password-store"})
_NAME = re.compile(
    r"""
    \.env | \.env\..* | .*\.env | \.envrc
    | .*\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk|asc|gpg)
    | id_(?:rsa|dsa|ecdsa|ed25519)(?:\..*)? | .*_(?:rsa|dsa|ecdsa|ed25519)
    | \.npmrc | \.netrc | _netrc | \.pypirc | \.pgpass | \.my\.cnf | \.htpasswd | \.git-credentials | \.dockercfg
    | credentials(?:\..*)? | .*secrets?\.(?:json|ya?ml|toml|txt|env) | .*service[-_]account.*\.json
    """,
    re.VERBOSE,
)
_HARMLESS = re.compile(r".*\.(?:example|sample|template|dist|pub)")


def is_sensitive(path: str) -> bool:
    """Whether a path below a root is likely to hold secrets: `.env`, private keys, `.ssh/` and the like."""
    *folders, name = path.casefold().split("/")
    if any(folder in _FOLDERS for folder in folders):
        return True
    return bool(_NAME.fullmatch(name)) and not _HARMLESS.fullmatch(name)
