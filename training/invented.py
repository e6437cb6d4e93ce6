"""Invented tools: a verb, a thing, some parameters, and requests for them in ordinary words.

Dice come in; tools that exist nowhere, with a request and its call, go out. There are as many of them as wanted, so that
nothing can be learned by heart: the model has to read the list and copy the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from training.corpus import human
from training.families import Request, quoted
from training.format import Call
from training.toollists import UNSPOKEN
from training.values import Said, Values

_VERBS = (
    "open", "close", "start", "stop", "pause", "book", "cancel", "clean", "repair", "move", "paint", "rent", "return", "ship", "pack",
    "sort", "count", "weigh", "check", "inspect", "lock", "unlock", "charge", "empty", "fill", "label", "mix", "order", "park", "plan",
    "publish", "archive", "restore", "share", "sign", "stamp", "store", "test", "tow", "wash", "assign", "approve", "reject", "print",
    "measure", "heat", "cool", "dim", "launch", "dock", "calibrate", "register", "renew", "suspend", "track", "transfer", "upgrade",
    "verify", "wrap", "polish", "bake", "brush", "refill", "record", "play", "trim", "tune", "feed", "schedule", "borrow",
)  # fmt: skip
_THINGS = (
    "boat", "bike", "locker", "kiosk", "greenhouse", "aquarium", "telescope", "drone", "elevator", "forklift", "fountain", "furnace",
    "generator", "glider", "hangar", "incubator", "kettle", "lantern", "loom", "magnet", "mixer", "mower", "pump", "printer", "projector",
    "pottery wheel", "radar", "reactor", "satellite", "sauna", "scooter", "scanner", "sculpture", "shuttle", "sprinkler", "submarine",
    "tractor", "trailer", "treadmill", "turbine", "valve", "van", "voucher", "warehouse", "well", "windmill", "workshop", "badge", "barrel",
    "beacon", "blanket", "crate", "curtain", "folder", "guitar", "hammock", "invoice", "jersey", "ladder", "manuscript", "membership",
    "parcel", "permit", "piano", "pipeline", "playlist", "recipe", "robot", "rocket", "sample", "seat", "sensor", "shelf", "shipment",
    "statue", "ticket", "tile", "trophy", "vehicle", "wagon", "case", "claim", "contract", "course", "exam", "form", "grant", "lesson",
    "loan", "lecture", "meeting", "offer", "patient", "policy", "project", "report", "shift", "survey", "task", "tour", "visit",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trait:
    """A parameter that any tool may have: its names, type, kind of value, description and phrases."""

    names: tuple[str, ...]
    type: str
    kind: str
    description: str
    phrases: tuple[str, ...]


_IDENTITY = (
    Trait(
        ("{}_id", "{}_code", "id", "{}_number", "{}"),
        "string",
        "code",
        "Id of the {}",
        ("{t} {v}", "the {t} {v}", "{t} number {v}", "{v}"),
    ),
    Trait(
        ("name", "{}_name", "{}"),
        "string",
        "slug",
        "Name of the {}",
        ("the {t} {v}", "{t} {v}", "the {t} called {v}", "{v}", "the {t} named {v}"),
    ),
    Trait(
        ("{}_id", "number", "{}_no"),
        "integer",
        "integer",
        "Number of the {}",
        ("{t} {v}", "{t} number {v}", "{t} no. {v}", "{t} #{v}"),
    ),
    Trait(("title", "{}_title", "{}"), "string", "title", "Title of the {}", ("the {t} {q}", "{t} {q}", "{q}")),
    Trait(
        ("{}_id", "ref", "reference"),
        "string",
        "sku",
        "Reference of the {}",
        ("{t} {v}", "the {t} {v}", "{v}", "{t} with reference {v}"),
    ),
    Trait(("path", "file", "{}_file"), "string", "path", "File of the {}", ("the {t} in {v}", "the {t} {v}", "{v}")),
)
_TRAITS = (
    Trait(("minutes", "duration_minutes", "duration"), "integer", "minutes", "How long, in minutes", ("for {v}", "{v} long", "for about {v}")),
    Trait(("duration", "length"), "string", "span", "How long, as said", ("for {v}", "{v} long")),
    Trait(("hours", "duration_hours"), "number", "hours", "How long, in hours", ("for {v}",)),
    Trait(("seconds", "delay_seconds", "wait"), "integer", "seconds", "Delay in seconds", ("after {v}", "in {v}", "with a delay of {v}")),
    Trait(("place", "location", "site", "room"), "string", "room", "Where", ("in {v}", "at {v}", "over in {v}")),
    Trait(("place", "venue", "shop", "branch", "partner"), "string", "venue", "Name of the place", ("at {v}", "in {v}", "from {v}", "with {v}")),
    Trait(("phone", "phone_number"), "string", "phone", "Number to call", ("and call {v}", "with the phone number {v}", "call me at {v}")),
    Trait(("city", "location", "place"), "string", "city", "City", ("in {v}", "from {v}", "near {v}")),
    Trait(("date", "day", "when"), "string", "day", "Day", ("on {v}", "for {v}", "{v}")),
    Trait(("date", "start_date", "from_date"), "string", "iso_date", "Day as YYYY-MM-DD", ("on {v}", "from {v}", "starting {v}")),
    Trait(("time", "start", "at"), "string", "time", "Time of day", ("at {v}", "from {v}", "starting at {v}")),
    Trait(("person", "user", "employee", "customer", "assignee"), "string", "person", "Person", ("for {v}", "to {v}", "on behalf of {v}", "with {v}")),
    Trait(("email", "notify", "contact"), "string", "email", "Address to inform", ("and inform {v}", "and write to {v}", "contact {v}", "and let {v} know")),
    Trait(("note", "comment", "reason", "message"), "string", "sentence", "Free text", ("with the note {q}", "and write {q}", "note: {q}", "saying {q}", "with the comment {q}")),
    Trait(("count", "quantity", "copies", "amount"), "integer", "2-40", "How many", ("{v} times", "{v} of them", "quantity {v}", "{v} pieces")),
    Trait(("price", "max_price", "budget", "cost"), "number", "money", "Price", ("for {v}", "for at most {v}", "at a price of {v}", "budget {v}")),
    Trait(("percent", "level", "power", "humidity"), "integer", "percent", "In percent, 0 to 100", ("at {v}", "to {v}", "with {v}", "up to {v}")),
    Trait(("degrees", "temperature", "temp_c"), "number", "5-240", "Temperature in degrees Celsius", ("at {v} degrees", "to {v} °C", "at {v}°", "to {v} degrees")),
    Trait(("color", "colour"), "string", "color", "Colour", ("in {v}", "{v}", "with {v}")),
    Trait(("weight_kg", "kilograms", "load_kg"), "number", "0.5-90.0", "Weight in kilograms", ("of {v} kg", "weighing {v} kg", "with {v} kilos")),
    Trait(("distance_km", "radius_km"), "number", "1-80", "Distance in kilometres", ("within {v} km", "over {v} kilometres", "{v} km")),
    Trait(("language", "lang"), "string", "language", "Language", ("in {v}",)),
    Trait(("url", "link"), "string", "url", "Web address", ("from {v}", "with the link {v}", "using {v}")),
    Trait(("version", "release"), "string", "version", "Version", ("version {v}", "at version {v}", "to {v}")),
    Trait(("tags", "labels", "keywords"), "string[]", "noun", "Labels", ("tagged {v}", "with the labels {v}", "tags: {v}")),
    Trait(("members", "people", "guests"), "string[]", "person", "People", ("with {v}", "for {v}", "and invite {v}")),
    Trait(("numbers", "items", "rows"), "integer[]", "integer", "Numbers", ("with {v}", "rows {v}", "numbers {v}")),
)  # fmt: skip
_ENUMS = (
    (("mode", "setting"), ("eco", "normal", "boost"), ("in {v} mode", "mode {v}", "on {v}")),
    (("priority", "urgency"), ("low", "medium", "high"), ("with {v} priority", "{v} priority", "priority {v}")),
    (("size",), ("small", "medium", "large"), ("in {v}", "size {v}", "{v} size")),
    (("format", "output"), ("pdf", "csv", "json", "html"), ("as {v}", "in {v} format", "as a {v}")),
    (("direction",), ("up", "down", "left", "right"), ("{v}", "going {v}")),
    (("speed",), ("slow", "medium", "fast"), ("at {v} speed", "speed {v}", "{v}")),
    (("plan", "tier"), ("basic", "plus", "premium"), ("on the {v} plan", "{v} plan", "with {v}")),
    (("quality",), ("draft", "good", "best"), ("in {v} quality", "quality {v}", "{v} quality")),
    (("shift", "slot"), ("morning", "afternoon", "night"), ("in the {v}", "{v} shift", "for the {v}")),
    (("transport", "by"), ("truck", "train", "ship", "plane"), ("by {v}", "using a {v}")),
    (("status", "state"), ("active", "inactive", "archived"), ("as {v}", "status {v}", "and mark it {v}")),
    (("level", "difficulty"), ("beginner", "intermediate", "expert"), ("for {v}s", "at {v} level", "{v} level")),
)  # fmt: skip
_FLAGS = (
    (("express", "rush"), ("express", "as a rush job", "as fast as possible"), ("no rush", "without express")),
    (("insured", "insurance"), ("with insurance", "insured"), ("without insurance", "uninsured")),
    (("notify", "send_notification"), ("and notify everyone", "and send a notification"), ("but don't notify anyone", "without a notification")),
    (("private", "is_private"), ("privately", "and keep it private"), ("publicly", "not private")),
    (("overnight",), ("overnight", "and leave it overnight"), ("not overnight",)),
    (("gift", "gift_wrap"), ("as a gift", "gift wrapped"), ("not as a gift",)),
    (("force",), ("by force", "even if it is in use"), ("but not by force",)),
)  # fmt: skip


@dataclass(slots=True)
class Invented:
    """A tool that exists nowhere."""

    schema: dict[str, Any]
    verb: str
    thing: str
    phrases: dict[str, tuple[str, ...]]
    kinds: dict[str, str]


def invent(values: Values, *, verb: str | None = None, thing: str | None = None) -> Invented:
    """A new tool, with a given verb or thing at times."""
    verb = verb or values.pick(_VERBS)
    thing = thing or (values.pick(_THINGS) if values.chance(0.8) else values.word().lower())
    word = thing.replace(" ", "_")
    properties: dict[str, Any] = {}
    phrases: dict[str, tuple[str, ...]] = {}
    kinds: dict[str, str] = {}
    required: list[str] = []

    def add(names: tuple[str, ...], schema: dict[str, Any], said: tuple[str, ...], kind: str, needed: bool) -> None:
        name = values.pick(names).format(word)
        if name not in properties:
            properties[name], phrases[name], kinds[name] = schema, said, kind
            if needed:
                required.append(name)

    if values.chance(0.85):
        trait = values.pick(_IDENTITY)
        add(trait.names, _schema(trait, thing), trait.phrases, trait.kind, values.chance(0.9))
    for _ in range(values.pick([0, 1, 1, 2, 2, 3])):
        roll, needed = values.rng.random(), values.chance(0.35)
        if roll < 0.65:
            trait = values.pick(_TRAITS)
            add(trait.names, _schema(trait, thing), trait.phrases, trait.kind, needed)
        elif roll < 0.88:
            names, options, said = values.pick(_ENUMS)
            add(names, {"type": "string", "description": names[0].capitalize(), "enum": list(options)}, said, "enum", needed)
        else:
            names, yes, no = values.pick(_FLAGS)
            add(names, {"type": "boolean", "description": f"{yes[0].capitalize()} or not"}, (yes, no), "flag", False)
    if values.chance(0.2):
        for extra in values.rng.sample(sorted(UNSPOKEN), values.rng.randint(1, 2)):
            properties.setdefault(extra, dict(UNSPOKEN[extra]))
    name = values.pick(
        [
            f"{verb}_{word}",
            f"{verb}_{word}",
            f"{word}_{verb}",
            f"{word}.{verb}",
            verb + "".join(part.capitalize() for part in word.split("_")),
        ]
    )
    article = "an" if thing[0] in "aeiou" else "a"
    description = values.pick(
        ["{v} {a} {t}.", "{v} the {t}.", "Use this to {lv} {a} {t}.", "{v}s {a} {t}", "{v} {a} {t} for the user."]
    )
    described = description.format(v=verb.capitalize(), lv=verb, a=article, t=thing)
    order = list(properties)
    if values.chance(0.3):
        values.rng.shuffle(order)
    parameters = {
        "properties": {key: properties[key] for key in order},
        "required": [key for key in order if key in required],
    }
    return Invented({"name": name, "description": described, "parameters": parameters}, verb, thing, phrases, kinds)


def _schema(trait: Trait, thing: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": trait.type, "description": trait.description.format(thing)}
    if trait.type.endswith("[]"):
        schema |= {"type": "array", "items": {"type": trait.type[:-2]}}
    return schema


def draw(values: Values, tool: Invented, name: str) -> Said:
    kind, schema = tool.kinds[name], tool.schema["parameters"]["properties"][name]
    if kind == "enum":
        return Said(option := values.pick(schema["enum"]), option)
    if kind == "percent":
        said = values.integer(1, 100)
        return Said(said.value, f"{said.value}{values.pick(['%', ' percent', ' %'])}")
    if schema["type"] == "array":
        items = list({item.value: item for item in (values.sample(kind) for _ in range(values.rng.randint(1, 3)))}.values())
        return Said([item.value for item in items], values.listed([item.spoken for item in items]))
    return values.sample(kind)


def request(tool: Invented, values: Values, *, without: str = "") -> Request:
    """A request for the tool in ordinary words, `without` one argument if that is wanted."""
    parameters = tool.schema["parameters"]
    chosen = [
        name
        for name in parameters["properties"]
        if name in tool.kinds and (name in parameters["required"] or values.chance(0.5))
    ]
    args: dict[str, Any] = {}
    said: dict[str, str] = {}
    parts: list[str] = []
    after: list[str] = []
    thing_said = False
    for name in chosen:
        if name == without:
            continue
        if tool.kinds[name] == "flag":
            yes = values.chance(0.7)
            args[name] = yes
            parts.append(values.pick(tool.phrases[name][0 if yes else 1]))
            continue
        value = draw(values, tool, name)
        args[name], said[name] = value.value, value.spoken
        phrase = values.pick(tool.phrases[name])
        if "{t}" not in phrase and phrase not in ("{v}", "{q}") and values.chance(0.12):
            after.append(
                values.pick(
                    ["The {k} is {v}.", "{k}: {v}.", "Use {v} as the {k}.", "The {k} should be {v}.", "{k} {v}."]
                ).format(k=human(name), v=value.spoken)
            )
            continue
        text = phrase.format(t=tool.thing, v=value.spoken, q=quoted(value.spoken, values) if "{q}" in phrase else "")
        if "{t}" in phrase:
            thing_said = True
            parts.insert(0, text)
        elif phrase in ("{v}", "{q}") and tool.kinds[name] in ("code", "slug", "sku", "path", "title"):
            thing_said = True
            parts.insert(0, text)
        else:
            parts.append(text)
    if not thing_said:
        article = "an" if tool.thing[0] in "aeiou" else "a"
        parts.insert(0, values.pick([f"{article} {tool.thing}", f"the {tool.thing}", f"our {tool.thing}"]))
    if values.chance(0.2) and len(parts) > 2:
        tail = parts[1:]
        values.rng.shuffle(tail)
        parts = [parts[0], *tail]
    body = " ".join(parts)
    form = values.pick([
        "{v} {b}", "{v} {b}", "{v} {b}", "please {v} {b}", "can you {v} {b}?", "could you {v} {b}", "I want to {v} {b}", "I need to {v} {b}",
        "I'd like to {v} {b}", "let's {v} {b}", "{v} {b} please", "we have to {v} {b}", "would you mind to {v} {b}?", "help me {v} {b}",
    ])  # fmt: skip
    text = form.format(v=tool.verb, b=body)
    if after:
        text = " ".join([text if text.endswith("?") else f"{text}.", *(part[0].upper() + part[1:] for part in after)])
    ordered = {name: args[name] for name in parameters["properties"] if name in args}
    return Request(text[0].upper() + text[1:] if values.chance(0.4) else text, ordered, said)


def call(tool: Invented, made: Request) -> Call:
    """The call that the request means."""
    return tool.schema["name"], made.args
