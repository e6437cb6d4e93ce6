"""Results of tools and the sentences that answer them.

A call comes in; a result of one of many shapes and one or two sentences made of it go out. Every fact of a sentence
stands in the result or in the call, an error is told as an error, and nothing found is told as nothing found.
"""

from __future__ import annotations

import json
import re
from typing import Any

from training.corpus import human
from training.values import WORDS, Values

_READING = re.compile(
    r"^(get|list|search|find|show|check|track|read|look|query|fetch|describe|retrieve|view|compare|count|calc|is_|has_|where|what)",
    re.I,
)
_FIELDS = {
    "name": "slug", "status": "=active,pending,shipped,running,closed,open,ready,delayed,paid,failed", "count": "1-400",
    "total": "money", "price": "money", "score": "0-100", "owner": "person", "date": "iso_date", "city": "city",
    "level": "=low,medium,high,critical", "type": "noun", "rank": "1-50", "email": "email", "category": "noun",
    "duration_minutes": "1-300", "distance_km": "0.5-900.0", "balance": "money", "temperature": "0-40",
    "population": "1000-9000000", "author": "person", "year": "1900-2026", "title": "title", "rating": "1.0-5.0",
    "phone": "phone", "address": "address", "version": "version", "gate": "gate", "eta": "time", "due": "iso_date",
    "color": "color", "size_mb": "1-900", "currency": "currency", "room": "room", "assignee": "person",
    "company": "company", "language": "language", "percent_full": "0-100", "uptime_days": "1-900", "tracking": "tracking",
}  # fmt: skip
_ERRORS = (
    "permission denied", "timeout after 30 s", "internal error", "rate limit exceeded", "connection refused",
    "invalid argument", "service unavailable", "quota exceeded", "not found", "the server answered 500", "no such item",
    "access token expired", "the request was rejected by the user", "out of stock", "the device is offline",
    "already exists",
)  # fmt: skip
_ERROR_SENTENCES = (
    "That did not work: {}.", "The call failed with an error: {}.", "I could not do that: {}.",
    "Sorry, there was an error: {}.", "The tool reported an error: {}.", "It failed: {}.",
)  # fmt: skip
_CONDITIONS = (
    "sunny", "cloudy", "light rain", "heavy rain", "snow", "clear sky", "partly cloudy", "fog", "windy", "thunderstorms",
    "overcast", "drizzle", "mostly sunny", "hail",
)  # fmt: skip
_RAIN = ("rain", "drizzle", "thunder", "hail")

Answer = tuple[Any, str]


def enumeration(texts: list[str]) -> str:
    """a, b and c."""
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " and " + texts[-1]


def _sentence(text: str) -> str:
    text = text[0].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else text + "."


class Results:
    """Makes results and their answers."""

    def __init__(self, values: Values) -> None:
        self.values = values

    def answer(self, name: str, args: dict[str, Any], question: str = "") -> Answer:
        """A result of the tool and what is said about it. `name` is the family's name, which knows special shapes."""
        values = self.values
        if values.chance(0.13):
            return self.error(args)
        special = getattr(self, f"_{name}", None)
        if special and values.chance(0.9):
            result, text = special(args, question)
        elif _READING.match(name.split(".")[-1]):
            result, text = self.found(args)
        else:
            result, text = self.done(args)
        if values.chance(0.5) and not (isinstance(result, dict) and "result" in result):
            result = {"result": result}
        return result, text

    # Shapes --------------------------------------------------------------------------------------------------------------

    def error(self, args: dict[str, Any]) -> Answer:
        """A failed call, told as such."""
        values = self.values
        message = values.pick(_ERRORS)
        texts = [value for value in args.values() if isinstance(value, str) and len(value) < 40]
        if texts and values.chance(0.5):
            message = values.pick(
                [
                    "not found: {}",
                    "no such file: {}",
                    "unknown value: {}",
                    "there is no {}",
                    "{} does not exist",
                    "cannot reach {}",
                ]
            ).format(values.pick(texts))
        shape = values.pick(["error", "error", "error", "nested", "status", "ok"])
        result = {
            "error": {"error": message},
            "nested": {"error": {"code": values.rng.choice([400, 401, 403, 404, 409, 500, 503]), "message": message}},
            "status": {"status": "error", "message": message}, "ok": {"ok": False, "error": message},
        }[shape]  # fmt: skip
        return result, values.pick(_ERROR_SENTENCES).format(message)

    def record(self, count: int) -> dict[str, Any]:
        """Some fields with values."""
        names = self.values.rng.sample(sorted(_FIELDS), count)
        return {name: self.values.sample(_FIELDS[name]).value for name in names}

    def found(self, args: dict[str, Any]) -> Answer:
        """What a reading tool gives back."""
        values, roll = self.values, self.values.rng.random()
        about = self._about(args)
        if roll < 0.4:
            fields = self.record(values.rng.randint(1, 4))
            return fields, self.tell(fields, about)
        if roll < 0.52:
            texts = [
                str(values.sample(values.pick(["slug", "person", "city", "title", "code"])).value)
                for _ in range(values.rng.randint(1, 6))
            ]
            key = values.pick(["items", "results", "names", "data", "matches"])
            result = values.pick([{key: texts}, texts, {key: texts, "count": len(texts)}])
            return result, values.pick(
                ["I found {n}: {l}.", "The results are {l}.", "Here is what I found: {l}.", "There are {n}: {l}."]
            ).format(n=len(texts), l=enumeration(texts))
        if roll < 0.7:
            return self._rows()
        if roll < 0.78:
            result = values.pick([{"results": []}, [], {"items": [], "count": 0}, {"matches": []}, None])
            return result, values.pick([
                "Nothing was found.", "There are no results.",
                "I found nothing{}.".format(f" for {about}" if about else ""),
            ])  # fmt: skip
        if roll < 0.9:
            value = values.sample(values.pick(["integer", "number", "slug", "title", "money", "day", "code"])).value
            result = values.pick([value, {"value": value}, {"result": value}, {"answer": value}])
            return result, values.pick(["The result is {}.", "The answer is {}.", "It is {}."]).format(value)
        text = values.sentence() if values.chance(0.6) else values.pick(WORDS["long_texts"])
        return values.pick([text, {"text": text}, {"summary": text}]), values.pick(
            ["It says: {}", "Here it is: {}", "The answer reads: {}"]
        ).format(text)

    def _rows(self) -> Answer:
        values = self.values
        extra = values.pick([None, "status", "price", "city", "owner", "date"])
        rows = []
        for _ in range(values.rng.randint(1, 4)):
            row = {"id": values.code(), "name": values.pick([values.person, values.slug, values.title])()}
            if extra:
                row[extra] = values.sample(_FIELDS[extra]).value
            rows.append(row)
        told = [f"{row['name']} ({row['id']}{', ' + str(row[extra]) if extra else ''})" for row in rows]
        result = values.pick([rows, {"items": rows}, {"results": rows, "total": len(rows)}])
        return result, values.pick(["I found {}: {}.", "There are {}: {}."]).format(len(rows), enumeration(told)) if len(
            rows
        ) > 1 else f"I found one: {told[0]}."

    def _about(self, args: dict[str, Any]) -> str:
        texts = [
            str(value)
            for value in args.values()
            if isinstance(value, str | int) and not isinstance(value, bool) and len(str(value)) < 30
        ]
        return texts[0] if texts else ""

    def tell(self, fields: dict[str, Any], about: str) -> str:
        """All fields in a sentence, or in two when there are many."""
        values = self.values
        told = [f"the {human(name)} is {value}" for name, value in fields.items()]
        if about and values.chance(0.35):
            told[0] = f"the {human(next(iter(fields)))} of {about} is {next(iter(fields.values()))}"
        if len(told) > 3:
            return f"{_sentence(enumeration(told[:2]))} {_sentence(enumeration(told[2:]))}"
        return _sentence(enumeration(told))

    def field(self, fields: dict[str, Any], name: str, about: str) -> str:
        """One field that was asked for."""
        value = fields[name]
        of = f" of {about}" if about and self.values.chance(0.6) else ""
        return self.values.pick(
            [f"The {human(name)}{of} is {value}.", f"The {human(name)}{of} is {value}.", f"It is {value}."]
        )

    def done(self, args: dict[str, Any]) -> Answer:
        """What an acting tool gives back."""
        values, about = self.values, self._about(args)
        shape = values.pick(["ack", "ack", "id", "message", "text", "record"])
        if shape == "id":
            identifier, status = values.code(), values.pick(["created", "pending", "confirmed", "queued", "done"])
            result = values.pick([{"id": identifier, "status": status}, {"ok": True, "id": identifier}, {"id": identifier}])
            tail = f"; the status is {status}" if "status" in result else ""
            return result, values.pick(
                [f"Done, the id is {identifier}{tail}.", f"That worked. The id is {identifier}{tail}."]
            )
        if shape == "message":
            message = values.pick([
                "saved", "request accepted", "it will be done tomorrow", "sent to the queue", "confirmation sent by mail",
                "2 items changed",
            ])  # fmt: skip
            return values.pick([{"message": message}, {"ok": True, "message": message}]), f"Done: {message}."
        if shape == "record" and args:
            status = values.pick(["confirmed", "scheduled", "active", "sent", "updated"])
            return {**args, "status": status}, values.pick(
                [f"Done, {about} is {status}.", f"That is {status}{' for ' + about if about else ''}."]
            ) if about else f"Done, it is {status}."
        result = values.pick([{"ok": True}, {"success": True}, {"status": "ok"}, "done", "ok", True, None, {}])
        return result, values.pick(
            ["Done.", f"Done: {about}.", f"That worked for {about}.", f"Done, {about} is taken care of."]
        ) if about else values.pick(["Done.", "That worked."])

    # Tools that people meet first ----------------------------------------------------------------------------------------

    def _list_files(self, args: dict[str, Any], question: str) -> Answer:
        values = self.values
        folder, pattern = args.get("path", ""), args.get("pattern", "")
        where = f" in {folder}" if folder and folder != "." else ""
        names = []
        for _ in range(values.rng.choice([0, 1, 2, 3, 3, 4, 5, 6, 8])):
            name = f"{values.word().lower()}{pattern[1:]}" if pattern.startswith("*.") else values.file_name()
            names.append(f"{folder}/{name}" if where and values.chance(0.7) else name)
        names = list(dict.fromkeys(names))
        result = values.pick([
            {"files": names}, {"files": names, "count": len(names)}, names, {"entries": names}, "\n".join(names),
            {"paths": names, "truncated": False},
        ])  # fmt: skip
        if not names:
            return result, values.pick([f"No matching files were found{where}.", f"There are no such files{where}."])
        if len(names) == 1:
            return result, f"There is one file{where}: {names[0]}."
        listed = enumeration(names)
        return result, values.pick([
            f"I found {len(names)} files{where}: {listed}.", f"The files{where} are {listed}.",
            f"Here are the files{where}: {listed}.",
        ])  # fmt: skip

    def _read_file(self, args: dict[str, Any], question: str) -> Answer:
        values, path = self.values, args["path"]
        lines = [values.sentence() for _ in range(values.pick([1, 1, 1, 2, 3, 4]))]
        text = values.pick(
            ["\n".join(lines), "\n".join(lines), values.version(), f"# {values.title()}\n\n" + "\n".join(lines)]
        )
        shape = values.pick(["content", "content", "text", "path", "plain", "lines"])
        result = {
            "content": {"content": text}, "text": {"text": text}, "path": {"path": path, "content": text}, "plain": text,
            "lines": {"path": path, "content": text, "total_lines": text.count("\n") + 1},
        }[shape]  # fmt: skip
        if not values.chance(0.95):
            return {"content": "", "path": path}, f"{path} is empty."
        return result, values.pick(["{} contains: {}", "The file {} says: {}", "Here is the content of {}: {}"]).format(
            path, text
        )

    def _write_file(self, args: dict[str, Any], question: str) -> Answer:
        values, path = self.values, args["path"]
        result = values.pick([
            {"ok": True, "path": path}, {"ok": True, "bytes_written": len(args["content"]), "path": path},
            {"success": True, "path": path}, {"status": "ok", "path": path, "mode": args.get("mode", "overwrite")},
            {"path": path, "bytes": len(args["content"])}, f"wrote {path}",
        ])  # fmt: skip
        if args.get("mode") == "append":
            return result, values.pick([f"I added the text to {path}.", f"Done, the text was appended to {path}."])
        return result, values.pick(
            [f"Done, I wrote the text to {path}.", f"The text was saved to {path}.", f"{path} has been written."]
        )

    def _edit_file(self, args: dict[str, Any], question: str) -> Answer:
        values, path = self.values, args["path"]
        count = values.rng.randint(1, 4)
        result = values.pick(
            [{"path": path, "replacements": count}, {"ok": True, "replaced": count}, f"replaced {count} in {path}"]
        )
        return result, values.pick(
            [f"I changed {path}: {count} replacement{'s' if count > 1 else ''}.", f"Done, the text in {path} was replaced."]
        )

    def _search_files(self, args: dict[str, Any], question: str) -> Answer:
        values = self.values
        rows = [{"path": values.path(), "line": values.rng.randint(1, 400)} for _ in range(values.pick([0, 1, 2, 3]))]
        word = args.get("query", args.get("pattern", ""))
        if not rows:
            return values.pick([{"matches": []}, []]), f"No file contains {word}."
        told = enumeration([f"{row['path']} line {row['line']}" for row in rows])
        return {"matches": [row | {"text": f"{values.word()} {word}"} for row in rows]}, f"I found {word} in {told}."

    _grep = _search_files

    def _get_current_weather(self, args: dict[str, Any], question: str) -> Answer:
        values, place, unit = self.values, args["location"], args.get("unit", "celsius")
        degrees = values.rng.randint(-15, 42) if unit == "celsius" else values.rng.randint(5, 105)
        condition = values.pick(_CONDITIONS)
        result = values.pick([
            {"location": place, "temperature": degrees, "unit": unit, "condition": condition},
            {"temp": degrees, "unit": unit, "condition": condition},
            {"location": place, "temperature": degrees, "conditions": condition, "humidity": values.rng.randint(20, 99)},
            {"city": place, "temperature": degrees, "unit": unit, "condition": condition, "wind_kmh": abs(degrees)},
            f"{condition}, {degrees} degrees",
        ])  # fmt: skip
        if re.search(r"\b(rain|umbrella)", question.lower()) and values.chance(0.8):
            wet = any(word in condition for word in _RAIN)
            return result, f"{'Yes' if wet else 'No'}, the weather in {place} is {condition} at {degrees} degrees {unit}."
        return result, values.pick([
            f"It is {degrees} degrees {unit} with {condition} in {place}.",
            f"The weather in {place} is {condition}, {degrees} degrees {unit}.",
            f"In {place} it is currently {degrees} degrees {unit} and the condition is {condition}.",
        ])  # fmt: skip

    def _calculate(self, args: dict[str, Any], question: str) -> Answer:
        value = self.values.number().value
        return self.values.pick([value, {"result": value}, {"value": value}, str(value)]), self.values.pick(
            [f"{args['expression']} = {value}.", f"The result is {value}."]
        )

    def _current_time(self, args: dict[str, Any], question: str) -> Answer:
        values = self.values
        zone = args.get("timezone", "UTC")
        day, time = values.iso_date().value, f"{values.rng.randint(0, 23):02d}:{values.rng.randint(0, 59):02d}"
        result = values.pick([
            f"{day}T{time}:00", {"time": time, "timezone": zone}, {"date": day, "time": time, "timezone": zone},
            f"{day} {time} {zone}",
        ])  # fmt: skip
        no_date = isinstance(result, dict) and "date" not in result
        if ("date" in question or "day" in question) and not no_date:
            return result, f"It is {day}, {time} {zone}."
        return result, values.pick([f"It is {time} in {zone}.", f"The time in {zone} is {time}."])

    def _cloudgenie_get_blueprints(self, args: dict[str, Any], question: str) -> Answer:
        values = self.values
        rows = [
            {
                "id": values.blueprint(),
                "name": values.pick(
                    ["PostgreSQL", "MySQL", "Redis", "Ubuntu server", "Web server", "Object storage", "Kafka", "Network"]
                ),
            }
            for _ in range(values.rng.randint(1, 4))
        ]
        if values.chance(0.2):
            return {
                "blueprints": [row["id"] for row in rows]
            }, f"The available blueprints are {enumeration([row['id'] for row in rows])}."
        told = enumeration([f"{row['name']} ({row['id']})" for row in rows])
        start = "One blueprint is available" if len(rows) == 1 else f"{len(rows)} blueprints are available"
        return {"blueprints": rows}, values.pick([f"{start}: {told}.", f"I found these blueprints: {told}."])

    def _cloudgenie_create_resource(self, args: dict[str, Any], question: str) -> Answer:
        values = self.values
        status, identifier = (
            values.pick(["provisioning", "created", "running", "pending"]),
            values.pick([f"res-{values.rng.randint(1, 999)}", values.code()]),
        )
        kind, name = args["type"], args["name"]
        return {"id": identifier, "name": name, "status": status}, values.pick([
            f"The {kind} {name} was created with id {identifier}; its status is {status}.",
            f"{name} is {status} (id {identifier}).",
            f"I created the {kind} {name}. Its id is {identifier} and its status is {status}.",
        ])  # fmt: skip


def shown(value: Any) -> str:
    """A value as it stands in a result."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
