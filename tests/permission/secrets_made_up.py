"""A hundred credentials, made up when they are asked for: none stands in this file, and none opens anything."""

from __future__ import annotations

import random
import string

UPPER = string.ascii_uppercase + string.digits
WORD = string.ascii_letters + string.digits
URL = WORD + "_-"
HEX = "0123456789abcdef"

# The beginning, what follows, how much of it. Beginnings are taken apart, so that nothing here looks like a credential.
SHAPES: list[tuple[str, str, int]] = [
    ("AK" + "IA", UPPER, 16),
    ("AS" + "IA", UPPER, 16),
    ("AR" + "OA", UPPER, 16),
    ("AI" + "za", URL, 35),
    ("ya" + "29.", URL, 60),
    ("GOC" + "SPX-", URL, 28),
    ("1/" + "/0", URL, 60),
    ("gh" + "p_", WORD, 36),
    ("gh" + "o_", WORD, 36),
    ("gh" + "s_", WORD, 36),
    ("gh" + "r_", WORD, 36),
    ("github" + "_pat_", WORD + "_", 82),
    ("gl" + "pat-", URL, 20),
    ("gl" + "dt-", URL, 20),
    ("gl" + "rt-", URL, 20),
    ("sk-" + "ant-api03-", URL, 90),
    ("sk-" + "proj-", URL, 48),
    ("sk" + "-", WORD, 48),
    ("sk-" + "svcacct-", URL, 40),
    ("gs" + "k_", WORD, 52),
    ("h" + "f_", WORD, 34),
    ("r" + "8_", WORD, 37),
    ("pp" + "lx-", WORD, 48),
    ("xa" + "i-", WORD, 80),
    ("xo" + "xb-", "0123456789-" + WORD, 50),
    ("xo" + "xp-", "0123456789-" + WORD, 70),
    ("xa" + "pp-1-", UPPER + "-", 60),
    ("https://hooks.slack" + ".com/services/T0000/B0000/", WORD, 24),
    ("https://discord.com/api/web" + "hooks/123456789012345678/", URL, 68),
    ("sk_" + "live_", WORD, 24),
    ("rk_" + "test_", WORD, 24),
    ("pk_" + "live_", WORD, 24),
    ("wh" + "sec_", WORD, 32),
    ("sq0" + "atp-", URL, 22),
    ("sq0" + "csp-", URL, 43),
    ("S" + "K", HEX, 32),
    ("A" + "C", HEX, 32),
    ("key" + "-", HEX, 32),
    ("np" + "m_", WORD, 36),
    ("py" + "pi-AgEIcHlwaS5vcmc", URL, 90),
    ("ruby" + "gems_", HEX, 48),
    ("dckr" + "_pat_", URL, 27),
    ("do" + "p_v1_", HEX, 64),
    ("do" + "o_v1_", HEX, 64),
    ("HRK" + "U-", URL, 60),
    ("dap" + "i", HEX, 32),
    ("NR" + "AK-", UPPER, 27),
    ("gl" + "sa_", URL, 41),
    ("gl" + "c_", WORD, 60),
    ("lin" + "_api_", WORD, 40),
    ("nt" + "n_", WORD, 46),
    ("sec" + "ret_", WORD, 43),
    ("ATA" + "TT3", URL, 180),
    ("shp" + "at_", HEX, 32),
    ("shp" + "ss_", HEX, 32),
    ("hv" + "s.", URL, 90),
    ("hv" + "b.", URL, 90),
    ("pscale" + "_tkn_", URL, 43),
    ("pscale" + "_pw_", URL, 43),
    ("sb" + "p_", HEX, 40),
    ("dp" + ".pt.", WORD, 43),
    ("dp" + ".st.", WORD, 43),
    ("AGE-SEC" + "RET-KEY-1", UPPER, 58),
    ("Account" + "Key=", WORD + "+/", 86),
    ("https://x.blob.core.windows.net/a?s" + "ig=", WORD, 43),
    ("v1.0" + "-" + "a1" * 12 + "-", HEX, 146),
]


def made_up(seed: int = 7) -> dict[str, str]:
    """Name -> a text with a credential in it; `core` of it is what must never reach a disk (see `core_of`)."""
    dice = random.Random(seed)

    def some(alphabet: str, count: int) -> str:
        return "".join(dice.choices(alphabet, k=count))

    found = {f"{index} {begin[:6]}": begin + some(alphabet, count) for index, (begin, alphabet, count) in enumerate(SHAPES)}
    found |= {
        "telegram": f"{some('123456789', 9)}:AA{some(URL, 33)}",
        "discord": f"M{some(WORD, 23)}.{some(WORD, 6)}.{some(WORD, 38)}",
        "sendgrid": f"SG.{some(WORD, 22)}.{some(WORD, 43)}",
        "mailchimp": f"{some(HEX, 32)}-us12",
        "azure secret": f"{some(WORD, 3)}8Q~{some(WORD, 34)}",
        "airtable": f"pat{some(WORD, 14)}.{some(HEX, 64)}",
        "terraform": f"{some(WORD, 14)}.atlasv1.{some(WORD, 67)}",
        "jwt": "ey" + f"J{some(WORD, 20)}.ey" + f"J{some(WORD, 60)}.{some(URL, 43)}",
        "unsigned jwt": "ey" + f"J{some(WORD, 20)}.ey" + f"J{some(WORD, 60)}.",
        "rsa key": "-----BEGIN RSA PRIV"
        + f"ATE KEY-----\n{some(WORD, 64)}\n{some(WORD, 64)}\n-----END RSA PRIVATE KEY-----",
        "key without an end": "-----BEGIN PRIV" + f"ATE KEY-----\n{some(WORD, 64)}",
        "pgp key": "-----BEGIN PGP PRIV" + f"ATE KEY BLOCK-----\n\n{some(WORD, 64)}\n-----END PGP PRIVATE KEY BLOCK-----",
        "url": f"postgres://admin:{some(WORD, 20)}@db.example.com/x",
        "url with a user alone": f"https://:{some(WORD, 20)}@example.com",
    }
    named = [
        "password={}",
        "PASSWORD = {}",
        'password: "{}"',
        "passwd={}",
        "pwd: {}",
        "api_key={}",
        "api-key: {}",
        "apiKey: '{}'",
        "secret={}",
        "client_secret={}",
        "aws_secret_access_key = {}",
        "token={}",
        "access_token: {}",
        '"refresh_token": "{}"',
        "Authorization: Bearer {}",
        "authorization: Basic {}",
        "Bearer {}",
        "session_id={}",
        "Set-Cookie: {}",
        "--token={}",
        "private_key => {}",
        "DB_PASSWORD={}",
        "?token={}&x=1",
        "X-Api-Key: {}",
    ]
    return found | {pattern: pattern.format(some(WORD, 24)) for pattern in named}


def core_of(text: str) -> str:
    """The longest run of letters and digits: the part that makes a credential one."""
    runs = "".join(char if char in WORD else " " for char in text).split()
    return max(runs, key=len)
