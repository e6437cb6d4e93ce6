"""Texts drawn at random: words, names, identifiers, paths, sentences.

A random generator and the word lists come in, strings go out. Many of them nobody has ever seen, so that a model that is
trained on them has to copy.
"""

from __future__ import annotations

import random
import re
import string
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

WORDS: dict[str, Any] = tomllib.loads((Path(__file__).parent / "words.toml").read_text(encoding="utf-8"))
_VOWELS, _CONSONANTS = "aeiouy", "bcdfghjklmnprstvwz"


class Dice:
    """Draws texts of many kinds."""

    def __init__(self, rng: random.Random, vocabulary: list[str] | None = None) -> None:
        self.rng = rng
        self.vocabulary = vocabulary or WORDS["nouns"]

    # Words and names -----------------------------------------------------------------------------------------------------

    def pick(self, options: list[Any] | tuple[Any, ...]) -> Any:
        return self.rng.choice(options)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pseudo_word(self) -> str:
        """A word that nobody has seen, so that only copying can get it right."""

        def syllable() -> str:
            return self.pick(_CONSONANTS) + self.pick(_VOWELS) + (self.pick(_CONSONANTS) if self.chance(0.4) else "")

        return "".join(syllable() for _ in range(self.rng.randint(1, 3)))

    def word(self) -> str:
        roll = self.rng.random()
        if roll < 0.35:
            return self.pick(WORDS["nouns"] + WORDS["adjectives"])
        return self.pick(self.vocabulary) if roll < 0.87 else self.pseudo_word()

    def first_name(self) -> str:
        if self.chance(0.06):
            return self.pseudo_word().capitalize()
        return self.pick(WORDS["first_names"] + WORDS["first_names_more"])

    def last_name(self) -> str:
        if self.chance(0.08):
            return self.pseudo_word().capitalize()
        return self.pick(WORDS["last_names"] + WORDS["last_names_more"])

    def person(self) -> str:
        if self.chance(0.07):
            return f"{self.pick(['Aunt', 'Uncle', 'Mr.', 'Mrs.', 'Ms.', 'Dr.', 'Professor'])} {self.last_name()}"
        return self.first_name() + (" " + self.last_name() if self.chance(0.5) else "")

    def named(self) -> str:
        """A person as people speak of them: often with a title, often by the first name alone."""
        roll = self.rng.random()
        if roll < 0.3:
            return f"{self.pick(WORDS['titles'])} {self.last_name()}"
        if roll < 0.4:
            return f"{self.first_name()} {self.last_name()}-{self.last_name()}"
        return self.person()

    def proper(self) -> str:
        """A name of a place, a farm, a wine or the like."""
        first, second = self.pick(WORDS["proper_adjectives"]), self.pick(WORDS["proper_nouns"])
        return self.pick([
            f"{first} {second}", f"{first} {second}", f"{first} {second}", f"{self.last_name()} {second}",
            f"{self.first_name()}'s {second}", second, f"St {self.first_name()}", f"{self.pick(WORDS['cities'])} {second}",
        ])  # fmt: skip

    def username(self) -> str:
        first, last = self.first_name().lower(), re.sub(r"\W", "", self.last_name()).lower()
        return self.pick(
            [first, f"{first}.{last}", f"{first[0]}{last}", f"{first}{self.rng.randint(1, 99)}", f"{first}_{last[0]}"]
        )

    def email(self) -> str:
        return f"{self.username()}@{self.pick(WORDS['address_domains'])}"

    def company(self) -> str:
        if self.chance(0.15):
            return f"{self.word().capitalize()} {self.pick(['Ltd', 'Inc', 'GmbH', 'Group', 'Partners', 'Systems'])}"
        return self.pick(WORDS["companies"] + WORDS["companies_more"])

    def venue(self) -> str:
        """A place with a name of its own, of several words more often than not."""
        name = self.pick([
            self.last_name(), self.first_name(), self.word().capitalize(), str(self.rng.randint(2, 99)),
            self.pick(WORDS["cities"]),
        ])  # fmt: skip
        kind = self.pick(WORDS["venues"])
        return self.pick([
            f"{kind} {name}", f"{kind} {name}", f"{name} {kind}", f"{name}'s", f"The {self.word().capitalize()} {kind}",
            f"{name} & {self.last_name()}",
        ])  # fmt: skip

    def phone(self) -> str:
        digits = "".join(self.rng.choices(string.digits, k=self.rng.randint(7, 10)))
        return self.pick([
            f"+{self.rng.randint(1, 99)}{digits}", f"+{self.rng.randint(1, 99)} {digits[:3]} {digits[3:]}", f"0{digits}",
            f"555-{digits[:4]}",
        ])  # fmt: skip

    # Identifiers ---------------------------------------------------------------------------------------------------------

    def slug(self) -> str:
        words = [self.word().lower() for _ in range(self.pick([1, 2, 2, 2, 3]))]
        if self.chance(0.35):
            words.append(
                self.pick([str(self.rng.randint(1, 99)), "v" + str(self.rng.randint(1, 9)), "api", "db", "prod", "eu"])
            )
        return self.pick(["-", "-", "-", "_", "."]).join(words)

    def identifier(self) -> str:
        """A name as in source code."""
        words = [self.word().lower() for _ in range(self.rng.randint(1, 3))]
        camel = words[0] + "".join(word.capitalize() for word in words[1:])
        return self.pick(["_".join(words), "_".join(words), camel, camel[0].upper() + camel[1:], "_".join(words).upper()])

    def code(self) -> str:
        letters = "".join(self.rng.choices(string.ascii_uppercase, k=self.rng.randint(1, 4)))
        digits = "".join(self.rng.choices(string.digits, k=self.rng.randint(2, 7)))
        mixed = "".join(self.rng.choices(string.ascii_uppercase + string.digits, k=self.rng.randint(5, 10)))
        lower = "".join(self.rng.choices("0123456789abcdef", k=self.rng.choice([6, 8, 12])))
        prefix = self.pick(["ord", "inv", "usr", "job", "msg", "res", "tkt", "id", "acct", "req"])
        return self.pick([
            f"{letters}-{digits}", f"{letters}{digits}", f"{prefix}-{digits}", f"{prefix}_{lower}", mixed, lower, digits,
            f"#{digits}", self.slug(),
        ])  # fmt: skip

    def uuid(self) -> str:
        digits = "".join(self.rng.choices("0123456789abcdef", k=32))
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def version(self) -> str:
        numbers = ".".join(str(self.rng.randint(0, 30)) for _ in range(self.pick([2, 3, 3])))
        return self.pick(["", "", "v"]) + numbers + self.pick(["", "", "", "-rc1", "-beta"])

    def branch(self) -> str:
        if self.chance(0.25):
            return self.pick(["main", "master", "develop", "staging"])
        return self.pick(["feature", "fix", "release", "hotfix", "chore", "user"]) + "/" + self.slug()

    def repo(self) -> str:
        return f"{self.slug()}/{self.slug()}"

    def ticket(self) -> str:
        letters = "".join(self.rng.choices(string.ascii_uppercase, k=self.rng.randint(2, 5)))
        return f"{letters}-{self.rng.randint(1, 9999)}"

    def blueprint(self) -> str:
        stack = self.pick(WORDS["stacks"])
        return self.pick([
            f"{stack}-{self.pick(WORDS['stack_suffixes'])}", f"bp-{self.word().lower()}", f"bp-{self.rng.randint(1, 999)}",
            self.slug(), stack,
        ])  # fmt: skip

    # Files ---------------------------------------------------------------------------------------------------------------

    def file_name(self) -> str:
        if self.chance(0.06):
            return self.pick(
                ["Makefile", "Dockerfile", ".gitignore", ".env", "LICENSE", "Procfile", "README", "CHANGELOG.md"]
            )
        first, second = self.word().lower(), self.word().lower()
        stem = self.pick([
            first, f"{first}_{second}", f"{first}-{second}", f"{first}{self.rng.randint(1, 20)}", first.upper(),
            f"test_{first}",
        ])  # fmt: skip
        return f"{stem}.{self.pick(list(WORDS['file_kinds']))}"

    def directory(self) -> str:
        parts = [self.pick(WORDS["directories"])]
        while self.chance(0.3):
            parts.append(self.pick(WORDS["directories"]) if self.chance(0.5) else self.word().lower())
        return "/".join(parts)

    def path(self) -> str:
        roll = self.rng.random()
        if roll < 0.5:
            return self.file_name()
        return self.pick(["", "", "", "", "./", "/", "~/"]) + f"{self.directory()}/{self.file_name()}"

    def glob(self) -> str:
        kind = self.pick(list(WORDS["file_kinds"]))
        if self.chance(0.8):
            return f"*.{kind}"
        name = self.word().lower()
        return self.pick([f"{name}*", f"*{name}*", f"**/*.{kind}", "test_*.py", f"{name}_*.{kind}"])

    def file_with(self, *extensions: str) -> Callable[[], str]:
        def sample() -> str:
            folder = f"{self.directory()}/" if self.chance(0.4) else ""
            stem = self.pick([self.word().lower(), self.slug(), f"IMG_{self.rng.randint(100, 9999)}"])
            return f"{folder}{stem}.{self.pick(extensions)}"

        return sample

    def url(self) -> str:
        host = self.pick(["www.", "", "api.", "docs."]) + self.word().lower() + self.pick([".com", ".org", ".io", ".dev"])
        number = self.rng.randint(1, 999)
        place = self.pick(
            ["", f"/{self.word().lower()}", f"/v{number % 3 + 1}/{self.slug()}", f"/{self.slug()}?id={number}"]
        )
        return f"https://{host}{place}"

    # Text ----------------------------------------------------------------------------------------------------------------

    def sentence(self) -> str:
        roll = self.rng.random()
        if roll < 0.07:
            return self.pick(WORDS["spoken_sentences"])
        if roll < 0.35:
            return self.pick(WORDS["sentences"])
        if roll < 0.45:
            return (
                f"{self.pick(WORDS['sentences'])} {self.pick(['and', 'but', 'then', 'so'])} {self.pick(WORDS['sentences'])}"
            )
        if roll < 0.6:
            verb = self.pick(["likes", "needs", "bought", "sent", "lost", "found", "broke", "wants"])
            return f"{self.first_name()} {verb} {self.pick(['a', 'the'])} {self.word()} {self.word()}"
        if roll < 0.72:
            value = self.pick([self.word(), str(self.rng.randint(0, 500)), self.code()])
            return f"{self.identifier()} {self.pick(['=', ':', 'is', '->', '=='])} {value}"
        if roll < 0.88:
            words = " ".join(self.word() for _ in range(self.rng.randint(1, 8)))
            return words if self.chance(0.5) else words.capitalize()
        verb, place = self.pick(["meet", "call", "ask", "invite"]), self.pick(["room", "line", "gate"])
        return f"{verb} {self.person()} {self.pick(['at', 'before'])} {self.clock()}, {place} {self.rng.randint(1, 30)}"

    def title(self) -> str:
        roll = self.rng.random()
        if roll < 0.3:
            return self.pick(WORDS["topics"])
        if roll < 0.6:
            return f"{self.pick(WORDS['adjectives'])} {self.pick(WORDS['nouns'])}"
        words = [self.word() for _ in range(self.rng.randint(1, 4))]
        return " ".join(words).capitalize() if self.chance(0.5) else " ".join(word.capitalize() for word in words)

    def clock(self) -> str:
        hour = self.rng.randint(1, 12)
        half = self.pick(["am", "pm", "AM", "PM"])
        return self.pick([
            f"{hour}{self.pick([' ', ''])}{half}",
            f"{hour}:{self.pick(['15', '30', '45', '05'])}{self.pick([' ', ''])}{half}",
            f"{self.rng.randint(0, 23):02d}:{self.pick(['00', '15', '30', '45', '20'])}", "noon", f"{hour} o'clock",
        ])  # fmt: skip
