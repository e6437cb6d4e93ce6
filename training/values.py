"""Values for arguments: what goes into the call and how a person says it.

A random generator and the word lists come in; `Said` pairs go out: the JSON value and its spoken form. Most are the same
text, so that the model learns to copy; the others ("half an hour" for 30 minutes) are the few readings that it must learn
to make. This file knows nothing of tools and prompts.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from typing import Any, NamedTuple

from training.dice import WORDS, Dice

__all__ = ["SAMPLERS", "WORDS", "Said", "Values", "ordinal", "same"]

NUMBER_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip


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


class Values(Dice):
    """Draws values of many kinds; every kind in `SAMPLERS` can be named in the family files."""

    # Files and expressions -----------------------------------------------------------------------------------------------

    def kind(self) -> Said:
        """Files of a kind, named by the language: Python for *.py."""
        kind = self.pick(list(WORDS["file_kinds"]))
        return Said(f"*.{kind}", self.pick(WORDS["file_kinds"][kind]))

    def extension(self) -> Said:
        kind = self.pick(list(WORDS["file_kinds"]))
        return Said(f"*.{kind}", kind)

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
            value, spoken = self.pick([
                (30, "half an hour"), (60, "an hour"), (60, "one hour"), (120, "two hours"), (90, "an hour and a half"),
                (15, "a quarter of an hour"), (45, "three quarters of an hour"), (180, "3 hours"), (90, "1.5 hours"),
                (120, "2 hours"), (1, "a minute"), (240, "four hours"),
            ])  # fmt: skip
            return Said(value, spoken)
        said = self.integer(2, self.pick([20, 90, 180]))
        return Said(said.value, f"{said.spoken} {self.pick(['minutes', 'minutes', 'min', 'mins'])}")

    def hours(self) -> Said:
        if self.chance(0.35):
            value, spoken = self.pick([
                (0.5, "half an hour"), (1, "an hour"), (1.5, "an hour and a half"), (1.5, "90 minutes"),
                (0.5, "30 minutes"), (2.5, "two and a half hours"),
            ])  # fmt: skip
            return Said(value, spoken)
        said = self.integer(2, 12) if self.chance(0.7) else self.decimal(1, 10)
        return Said(said.value, f"{said.spoken} {self.pick(['hours', 'hours', 'hrs', 'h'])}")

    def seconds(self) -> Said:
        if self.chance(0.35):
            value, spoken = self.pick([
                (30, "half a minute"), (60, "a minute"), (120, "two minutes"), (300, "5 minutes"),
                (90, "a minute and a half"), (600, "ten minutes"),
            ])  # fmt: skip
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

    def hhmm(self) -> Said:
        """A time of day with its half of the day: always HH:MM in the call."""
        hour, minute = self.rng.randint(0, 23), self.pick([0, 0, 0, 30, 30, 15, 45, 20, 5, 40])
        value, short, half = f"{hour:02d}:{minute:02d}", (hour + 11) % 12 + 1, "am" if hour < 12 else "pm"
        forms = [value, value, f"{hour}:{minute:02d}", f"{short}:{minute:02d} {half}", f"{short}:{minute:02d}{half}"]
        if minute == 0 and hour:
            part = "in the morning" if hour < 12 else "in the afternoon" if hour < 18 else "in the evening"
            forms += [
                f"{short} {half}",
                f"{short}{half}",
                f"{short} o'clock {part}",
                "noon" if hour == 12 else f"{short} {half}",
            ]
        elif minute in (15, 30, 45) and 1 <= hour < 23:
            word = {15: "a quarter past", 30: "half past", 45: "a quarter to"}[minute]
            named = NUMBER_WORDS[short if minute < 45 else short % 12 + 1]
            forms += [f"{word} {named} {half}"] if hour != 11 else []
        return Said(value, self.pick(forms))

    def compound(self) -> Said:
        spoken = f"{self.pick(WORDS['compound_adjectives'])} {self.pick(WORDS['compound_nouns'])}"
        return same(spoken)

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
    "boat": _from("boats"),
    "booking_code": _template("@@#@@#", "@@@@@@", "BK-#####", "@#@#@#", "RES######"),
    "branch": Values.branch,
    "card": _template("########", "LC-####", "####-####", "@@######"),
    "channel": _from("channels"),
    "city": _from("cities"),
    "code": Values.code,
    "code_text": _from("code_texts"),
    "color": _from("colors"),
    "command": _from("commands"),
    "compound": Values.compound,
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
    "hhmm": Values.hhmm,
    "horse": _from("horses"),
    "hours": Values.hours,
    "identifier": Values.identifier,
    "image_path": lambda values: values.file_with("png", "jpg", "jpeg", "webp", "gif")(),
    "ingredient": _from("ingredients"),
    "integer": Values.some_integer,
    "iso_date": Values.iso_date,
    "item": lambda values: values.pick(WORDS["foods"] + WORDS["nouns"]),
    "kind": Values.kind,
    "label": _template("@#", "@##", "@-##", "@-###", "@@-####", "##", "#", "###", "#@", "##@", "@@##", "@ ##"),
    "language": _from("languages"),
    "long_text": _from("long_texts"),
    "medicine": _from("medicines"),
    "minutes": Values.minutes,
    "money": Values.money,
    "named": Values.named,
    "noun": Values.word,
    "number": Values.number,
    "package": lambda values: values.pick(WORDS["packages"]) if values.chance(0.6) else values.slug(),
    "path": Values.path,
    "people": Values.person,
    "person": Values.person,
    "pet": _from("pets"),
    "phone": Values.phone,
    "picfile": _template("IMG_####", "DSC#####", "####", "P-###", "portrait_##.jpg"),
    "picture": _from("pictures"),
    "pin": _template("####", "######"),
    "place": _from("places"),
    "plant": _from("plants"),
    "plate": _template("@-@@ ####", "@@ ### @@", "@@@-####", "@@##@@@", "###-@@@"),
    "problem": _from("problems"),
    "product": _from("products"),
    "proper": Values.proper,
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
    "street": lambda values: (
        f"{values.pick([values.last_name(), values.pick(WORDS['proper_nouns']), values.first_name()])} "
        f"{values.pick(WORDS['street_kinds'])}{values.pick(['', '', f' {values.rng.randint(1, 120)}'])}"
    ),
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
    "train": _template("IC ###", "RE #", "S#", "ICE ###", "EN ###", "R##", "TGV ####", "RB ##"),
    "unit": _from("units"),
    "url": Values.url,
    "venue": Values.venue,
    "username": Values.username,
    "uuid": Values.uuid,
    "version": Values.version,
    "video_path": lambda values: values.file_with("mp4", "mov", "mkv")(),
}
