"""Values for arguments: what goes into the call and how a person says it.

A random generator and the word lists come in; `Said` pairs go out: the JSON value and its spoken form. Most are the same text,
so that the model learns to copy; the others ("half an hour" for 30 minutes) are the few readings that it must learn to make.
This file knows nothing of tools and prompts.
"""

from __future__ import annotations

import random
import re
import string
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

WORDS: dict[str, Any] = tomllib.loads((Path(__file__).parent / "words.toml").read_text(encoding="utf-8"))
NUMBER_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
).split()
_VOWELS, _CONSONANTS = "aeiouy", "bcdfghjklmnprstvwz"


class Said(NamedTuple):
    """A value and the words for it."""

    value: Any
    spoken: str


def same(text: str) -> Said:
    """A value that is said as it is written."""
    return Said(text, text)


def ordinal(day: int) -> str:
    """1st, 2nd, 3rd, 4th and so on."""
    suffix = "th" if 10 <= day % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{suffix}"


class Values:
    """Draws values of many kinds; every kind in `SAMPLERS` can be named in the family files."""

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
        parts = []
        for _ in range(self.rng.randint(1, 3)):
            parts.append(self.pick(_CONSONANTS) + self.pick(_VOWELS) + (self.pick(_CONSONANTS) if self.chance(0.4) else ""))
        return "".join(parts)

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
        name = self.pick(
            [
                self.last_name(),
                self.first_name(),
                self.word().capitalize(),
                str(self.rng.randint(2, 99)),
                self.pick(WORDS["cities"]),
            ]
        )
        kind = self.pick(WORDS["venues"])
        return self.pick(
            [
                f"{kind} {name}",
                f"{kind} {name}",
                f"{name} {kind}",
                f"{name}'s",
                f"The {self.word().capitalize()} {kind}",
                f"{name} & {self.last_name()}",
            ]
        )

    def phone(self) -> str:
        digits = "".join(self.rng.choices(string.digits, k=self.rng.randint(7, 10)))
        return self.pick(
            [
                f"+{self.rng.randint(1, 99)}{digits}",
                f"+{self.rng.randint(1, 99)} {digits[:3]} {digits[3:]}",
                f"0{digits}",
                f"555-{digits[:4]}",
            ]
        )

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
        return self.pick(
            [
                f"{letters}-{digits}",
                f"{letters}{digits}",
                f"{prefix}-{digits}",
                f"{prefix}_{lower}",
                mixed,
                lower,
                digits,
                f"#{digits}",
                self.slug(),
            ]
        )

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
        return self.pick(
            [
                f"{stack}-{self.pick(WORDS['stack_suffixes'])}",
                f"bp-{self.word().lower()}",
                f"bp-{self.rng.randint(1, 999)}",
                self.slug(),
                stack,
            ]
        )

    # Files ---------------------------------------------------------------------------------------------------------------

    def file_name(self) -> str:
        if self.chance(0.06):
            return self.pick(
                ["Makefile", "Dockerfile", ".gitignore", ".env", "LICENSE", "Procfile", "README", "CHANGELOG.md"]
            )
        first, second = self.word().lower(), self.word().lower()
        stem = self.pick(
            [
                first,
                f"{first}_{second}",
                f"{first}-{second}",
                f"{first}{self.rng.randint(1, 20)}",
                first.upper(),
                f"test_{first}",
            ]
        )
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

    def kind(self) -> Said:
        """Files of a kind, named by the language: Python for *.py."""
        kind = self.pick(list(WORDS["file_kinds"]))
        return Said(f"*.{kind}", self.pick(WORDS["file_kinds"][kind]))

    def extension(self) -> Said:
        kind = self.pick(list(WORDS["file_kinds"]))
        return Said(f"*.{kind}", kind)

    def file_with(self, *extensions: str) -> Callable[[], str]:
        def sample() -> str:
            folder = f"{self.directory()}/" if self.chance(0.4) else ""
            return f"{folder}{self.pick([self.word().lower(), self.slug(), f'IMG_{self.rng.randint(100, 9999)}'])}.{self.pick(extensions)}"

        return sample

    def url(self) -> str:
        host = self.pick(["www.", "", "api.", "docs."]) + self.word().lower() + self.pick([".com", ".org", ".io", ".dev"])
        return (
            "https://"
            + host
            + self.pick(
                [
                    "",
                    f"/{self.word().lower()}",
                    f"/v{self.rng.randint(1, 3)}/{self.slug()}",
                    f"/{self.slug()}?id={self.rng.randint(1, 999)}",
                ]
            )
        )

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
            return f"{self.first_name()} {self.pick(['likes', 'needs', 'bought', 'sent', 'lost', 'found', 'broke', 'wants'])} {self.pick(['a', 'the'])} {self.word()} {self.word()}"
        if roll < 0.72:
            return f"{self.identifier()} {self.pick(['=', ':', 'is', '->', '=='])} {self.pick([self.word(), str(self.rng.randint(0, 500)), self.code()])}"
        if roll < 0.88:
            words = " ".join(self.word() for _ in range(self.rng.randint(1, 8)))
            return words if self.chance(0.5) else words.capitalize()
        return f"{self.pick(['meet', 'call', 'ask', 'invite'])} {self.person()} {self.pick(['at', 'before', 'after'])} {self.clock()}, {self.pick(['room', 'line', 'gate'])} {self.rng.randint(1, 30)}"

    def title(self) -> str:
        roll = self.rng.random()
        if roll < 0.3:
            return self.pick(WORDS["topics"])
        if roll < 0.6:
            return f"{self.pick(WORDS['adjectives'])} {self.pick(WORDS['nouns'])}"
        words = [self.word() for _ in range(self.rng.randint(1, 4))]
        return " ".join(words).capitalize() if self.chance(0.5) else " ".join(word.capitalize() for word in words)

    def expression(self) -> Said:
        def number() -> str:
            return self.pick(
                [str(self.rng.randint(1, 20)), str(self.rng.randint(1, 999)), str(round(self.rng.uniform(0, 99), 1))]
            )

        first, second, third = number(), number(), number()
        sign = self.pick(["+", "-", "*", "/"])
        if self.chance(0.35):
            word = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}[sign]
            return Said(f"{first} {sign} {second}", f"{first} {word} {second}")
        if self.chance(0.4):
            return same(f"{first}{sign}{second}" if self.chance(0.4) else f"{first} {sign} {second}")
        other = self.pick(["+", "-", "*", "/"])
        return same(
            self.pick(
                [
                    f"{first} {sign} {second} {other} {third}",
                    f"({first} {sign} {second}) {other} {third}",
                    f"{first} {sign} ({second} {other} {third})",
                    f"sqrt({first})",
                    f"{first} ** {self.rng.randint(2, 5)}",
                    f"{first}^{self.rng.randint(2, 5)}",
                    f"{first} % {second}",
                ]
            )
        )

    # Numbers -------------------------------------------------------------------------------------------------------------

    def integer(self, low: int = 1, high: int = 1000) -> Said:
        value = self.rng.randint(low, high)
        if 0 <= value <= 20 and self.chance(0.25):
            return Said(value, NUMBER_WORDS[value])
        if value >= 1000 and not 1900 <= value <= 2100 and self.chance(0.4):
            return Said(value, f"{value:,}")
        return Said(value, str(value))

    def some_integer(self) -> Said:
        return self.integer(1, self.pick([10, 100, 1000, 20000]))

    def decimal(self, low: float, high: float) -> Said:
        value = round(self.rng.uniform(low, high), self.pick([1, 1, 2]))
        return Said(value, str(value))

    def number(self) -> Said:
        roll = self.rng.random()
        if roll < 0.5:
            return self.some_integer()
        return self.decimal(0, 100) if roll < 0.85 else Said(value := round(self.rng.uniform(0, 1), 2), str(value))

    def money(self) -> Said:
        roll = self.rng.random()
        if roll < 0.45:
            return self.integer(1, self.pick([20, 100, 500, 5000]))
        if roll < 0.9:
            value = round(self.rng.uniform(1, self.pick([20, 100, 900])), 2)
            return Said(value, f"{value:.2f}")
        value = self.rng.randint(2, 90)
        return Said(value * 1000, f"{value}k")

    def minutes(self) -> Said:
        if self.chance(0.35):
            value, spoken = self.pick(
                [
                    (30, "half an hour"),
                    (60, "an hour"),
                    (60, "one hour"),
                    (120, "two hours"),
                    (90, "an hour and a half"),
                    (15, "a quarter of an hour"),
                    (45, "three quarters of an hour"),
                    (180, "3 hours"),
                    (90, "1.5 hours"),
                    (120, "2 hours"),
                    (1, "a minute"),
                    (240, "four hours"),
                ]
            )
            return Said(value, spoken)
        said = self.integer(2, self.pick([20, 90, 180]))
        return Said(said.value, f"{said.spoken} {self.pick(['minutes', 'minutes', 'min', 'mins'])}")

    def hours(self) -> Said:
        if self.chance(0.35):
            value, spoken = self.pick(
                [
                    (0.5, "half an hour"),
                    (1, "an hour"),
                    (1.5, "an hour and a half"),
                    (1.5, "90 minutes"),
                    (0.5, "30 minutes"),
                    (2.5, "two and a half hours"),
                ]
            )
            return Said(value, spoken)
        said = self.integer(2, 12) if self.chance(0.7) else self.decimal(1, 10)
        return Said(said.value, f"{said.spoken} {self.pick(['hours', 'hours', 'hrs', 'h'])}")

    def seconds(self) -> Said:
        if self.chance(0.35):
            value, spoken = self.pick(
                [
                    (30, "half a minute"),
                    (60, "a minute"),
                    (120, "two minutes"),
                    (300, "5 minutes"),
                    (90, "a minute and a half"),
                    (600, "ten minutes"),
                ]
            )
            return Said(value, spoken)
        said = self.integer(2, 120)
        return Said(said.value, f"{said.spoken} {self.pick(['seconds', 'seconds', 'secs', 's'])}")

    # Days and times ------------------------------------------------------------------------------------------------------

    def iso_date(self) -> Said:
        """A day with its year: always YYYY-MM-DD in the call."""
        year, month, day = self.rng.randint(1990, 2028), self.rng.randint(1, 12), self.rng.randint(1, 28)
        name = WORDS["months"][month - 1]
        value = f"{year}-{month:02d}-{day:02d}"
        return Said(
            value,
            self.pick(
                [
                    value,
                    value,
                    f"{name} {day}, {year}",
                    f"{day} {name} {year}",
                    f"{name} {ordinal(day)} {year}",
                    f"{name[:3]} {day} {year}",
                    f"the {ordinal(day)} of {name} {year}",
                ]
            ),
        )

    def day(self) -> Said:
        """A day as people say it, kept as it was said."""
        day, name = self.rng.randint(1, 28), self.pick(WORDS["months"])
        return same(
            self.pick(
                [
                    self.pick(WORDS["days"]),
                    f"next {self.pick(WORDS['days'])}",
                    "tomorrow",
                    "today",
                    f"{name} {day}",
                    f"{name} {ordinal(day)}",
                    f"{day} {name}",
                    f"the {ordinal(day)} of {name}",
                    self.iso_date().value,
                    f"{day}/{self.rng.randint(1, 12)}",
                    "the day after tomorrow",
                ]
            )
        )

    def clock(self) -> str:
        hour = self.rng.randint(1, 12)
        half = self.pick(["am", "pm", "AM", "PM"])
        return self.pick(
            [
                f"{hour}{self.pick([' ', ''])}{half}",
                f"{hour}:{self.pick(['15', '30', '45', '05'])}{self.pick([' ', ''])}{half}",
                f"{self.rng.randint(0, 23):02d}:{self.pick(['00', '15', '30', '45', '20'])}",
                "noon",
                f"{hour} o'clock",
            ]
        )

    def time_zone(self) -> Said:
        if self.chance(0.35):
            return same(self.pick(WORDS["time_zones"]))
        city = self.pick(list(WORDS["city_time_zones"]))
        return Said(WORDS["city_time_zones"][city], city)

    # By name -------------------------------------------------------------------------------------------------------------

    def sample(self, kind: str) -> Said:
        """One value of a kind: a name in `SAMPLERS`, a range such as `1-20` or `0.5-9.5`, or a list such as `=red,green`."""
        if kind.startswith("="):
            return same(self.pick(kind[1:].split(",")))
        if found := re.fullmatch(r"([\d.]+)-([\d.]+)", kind):
            low, high = found.groups()
            return self.decimal(float(low), float(high)) if "." in kind else self.integer(int(low), int(high))
        try:
            sampler = SAMPLERS[kind]
        except KeyError:
            raise ValueError(
                f"There is no kind of value called {kind!r}. There are: {', '.join(sorted(SAMPLERS))}."
            ) from None
        made = sampler(self)
        return made if isinstance(made, Said) else same(made)

    def listed(self, texts: list[str]) -> str:
        """Several things in one breath: a, b and c."""
        if len(texts) == 1:
            return texts[0]
        head = ", ".join(texts[:-1])
        return self.pick(
            [f"{head} and {texts[-1]}", f"{head} and {texts[-1]}", f"{head}, {texts[-1]}", f"{head}, and {texts[-1]}"]
        )


def _from(name: str) -> Callable[[Values], Said]:
    """A word of a list. An article in front is said and not meant: "a water leak" is `water leak` in the call."""

    def sample(values: Values) -> Said:
        spoken = values.pick(WORDS[name])
        return Said(spoken if name == "pictures" else re.sub(r"^(the|an?) ", "", spoken), spoken)

    return sample


def _template(*templates: str) -> Callable[[Values], str]:
    """Templates where # is a digit, @ a capital letter."""

    def sample(values: Values) -> str:
        filled = re.sub("#", lambda _: values.pick(string.digits), values.pick(templates))
        return re.sub("@", lambda _: values.pick(string.ascii_uppercase), filled)

    return sample


SAMPLERS: dict[str, Callable[[Values], Said | str]] = {
    "address": _from("addresses"),
    "artist": _from("artists"),
    "audio_path": lambda values: values.file_with("mp3", "wav", "m4a")(),
    "blueprint": Values.blueprint,
    "booking_code": _template("@@#@@#", "@@@@@@", "BK-#####", "@#@#@#", "RES######"),
    "branch": Values.branch,
    "card": _template("########", "LC-####", "####-####", "@@######"),
    "channel": _from("channels"),
    "city": _from("cities"),
    "code": Values.code,
    "code_text": _from("code_texts"),
    "color": _from("colors"),
    "command": _from("commands"),
    "company": Values.company,
    "country": _from("countries"),
    "coupon": _template("SAVE##", "WELCOME##", "@@@@##", "SUMMER-##", "VIP@@##", "FREESHIP"),
    "course_code": _template("@@##", "@@@-###", "CS###", "MATH ###", "BIO-##"),
    "cron": lambda values: values.pick(
        ["0 * * * *", "*/5 * * * *", "0 3 * * 1", "30 2 1 * *", "15 14 * * 1-5", "0 0 * * 0"]
    ),
    "currency": _from("currencies"),
    "day": Values.day,
    "directory": Values.directory,
    "doctor": _from("doctors"),
    "door": _from("doors"),
    "email": Values.email,
    "employee": lambda values: values.person() if values.chance(0.6) else values.sample("employee_id").value,
    "employee_id": _template("E-#####", "EMP###", "#####", "@#####", "emp_####"),
    "env_name": lambda values: values.pick(WORDS["env_names"]) if values.chance(0.6) else values.identifier().upper(),
    "env_value": lambda values: values.pick(
        [values.word(), str(values.rng.randint(0, 9000)), "true", "false", values.url(), values.slug()]
    ),
    "expression": Values.expression,
    "extension": Values.extension,
    "flight_number": _template("@@###", "@@ ####", "LH###", "BA##", "UA####"),
    "food": _from("foods"),
    "foreign": _from("foreign"),
    "garage": _from("garages"),
    "gate": _from("gates"),
    "git_ref": lambda values: values.pick([values.version(), values.branch(), values.uuid()[:7], "HEAD~2", "HEAD"]),
    "glob": Values.glob,
    "hours": Values.hours,
    "identifier": Values.identifier,
    "image_path": lambda values: values.file_with("png", "jpg", "jpeg", "webp", "gif")(),
    "ingredient": _from("ingredients"),
    "integer": Values.some_integer,
    "iso_date": Values.iso_date,
    "item": lambda values: values.pick(WORDS["foods"] + WORDS["nouns"]),
    "kind": Values.kind,
    "language": _from("languages"),
    "long_text": _from("long_texts"),
    "medicine": _from("medicines"),
    "minutes": Values.minutes,
    "money": Values.money,
    "noun": Values.word,
    "number": Values.number,
    "package": lambda values: values.pick(WORDS["packages"]) if values.chance(0.6) else values.slug(),
    "path": Values.path,
    "people": Values.person,
    "person": Values.person,
    "pet": _from("pets"),
    "phone": Values.phone,
    "picture": _from("pictures"),
    "pin": _template("####", "######"),
    "place": _from("places"),
    "plant": _from("plants"),
    "plate": _template("@-@@ ####", "@@ ### @@", "@@@-####", "@@##@@@", "###-@@@"),
    "problem": _from("problems"),
    "product": _from("products"),
    "prog_language": _from("prog_languages"),
    "question": _from("questions"),
    "rare_word": lambda values: values.pick(WORDS["rare_words"]) if values.chance(0.4) else values.word().lower(),
    "repo": Values.repo,
    "resource_type": _from("resource_types"),
    "restaurant": _from("restaurants"),
    "review": _from("reviews"),
    "room": _from("rooms"),
    "room_home": _from("home_rooms"),
    "route": _template("route ##", "R-###", "tour @", "line #", "NW-##"),
    "seconds": Values.seconds,
    "sentence": Values.sentence,
    "sku": _template("@@-####", "@@@##", "SKU-#####", "######", "@@##-@@@", "art-###", "####-@"),
    "slug": Values.slug,
    "span": lambda values: same(values.pick([values.minutes, values.hours, values.seconds])().spoken),
    "song": lambda values: values.pick(WORDS["songs"]) if values.chance(0.6) else values.title(),
    "sport_team": _from("sport_teams"),
    "sql": _from("sql"),
    "station": _from("stations"),
    "station_id": _template("CP-###", "station ##", "EV@##", "pole #"),
    "symptom": _from("symptoms"),
    "task": _from("tasks"),
    "team": _from("teams"),
    "team_sport": _from("sport_teams"),
    "ticker": _from("tickers"),
    "ticket": Values.ticket,
    "time": Values.clock,
    "timezone": Values.time_zone,
    "title": Values.title,
    "topic": lambda values: values.pick(WORDS["topics"]) if values.chance(0.6) else f"{values.word()} {values.word()}",
    "tracking": _template("1Z########", "JD##########", "@@#########@@", "############", "TRK-#####-@@"),
    "unit": _from("units"),
    "url": Values.url,
    "venue": Values.venue,
    "username": Values.username,
    "uuid": Values.uuid,
    "version": Values.version,
    "video_path": lambda values: values.file_with("mp4", "mov", "mkv")(),
}
