"""Requests made out of a schema alone: a phrase for the action and one for each argument.

A tool comes in; a request and the arguments that are meant go out. The wording is stiff, but there are 17,000 tools to
take it from, so this teaches what the families cannot: to read a list of tools that nobody has seen.
"""

from __future__ import annotations

import re
from typing import Any

from training.corpus import human
from training.families import Request, quoted
from training.values import WORDS, Said, Values, ordinal

_SYNONYMS = {
    "get": ("get", "retrieve", "fetch", "show me", "pull up", "give me", "find", "look up", "tell me"),
    "retrieve": ("get", "retrieve", "fetch", "show me", "pull", "find"),
    "list": ("list", "show", "show me", "give me", "enumerate"),
    "create": ("create", "make", "add", "set up", "start"),
    "delete": ("delete", "remove", "get rid of", "drop"),
    "update": ("update", "change", "modify", "edit"),
    "calculate": ("calculate", "compute", "work out", "find", "figure out", "determine"),
    "compute": ("calculate", "compute", "work out"),
    "search": ("search", "look", "find"),
    "find": ("find", "look for", "search for", "locate"),
    "describe": ("describe", "show me", "give me", "get"),
    "return": ("get", "give me", "show me"),
    "fetch": ("fetch", "get", "show me"),
    "determine": ("determine", "work out", "find"),
    "generate": ("generate", "make", "create", "produce"),
    "add": ("add", "put in", "insert"),
    "send": ("send", "deliver"),
    "estimate": ("estimate", "work out"),
    "convert": ("convert", "change"),
    "analyze": ("analyze", "analyse", "look at"),
    "check": ("check", "verify"),
    "remove": ("remove", "delete", "take away"),
    "start": ("start", "begin", "launch", "kick off"),
    "stop": ("stop", "end", "halt"),
    "book": ("book", "reserve"),
    "predict": ("predict", "forecast"),
}
_WRAPS = (
    "{}", "{}", "{}", "{}.", "Please {}.", "please {}", "Can you {}?", "Could you {}?", "I need to {}.", "I want to {}.",
    "I'd like to {}.", "I want you to {}", "Help me {}.", "Hey, {}", "{} for me", "{}, please", "Would you {}?", "can u {}",
    "I need you to {}.", "Kindly {}.",
)  # fmt: skip
_READING = {"get", "retrieve", "fetch", "list", "describe", "return", "find", "show", "calculate", "compute", "determine"}
_NO_VERB = {"this", "the", "a", "an", "it", "use", "note", "returns", "if", "for", "in", "when"}
# Where the description of an action turns to its arguments, which the request says by itself.
_TAIL = re.compile(
    r" (?:given|based on|using|for (?:the|a) (?:specified|given|specific)|for (?:the|a) (?:user|particular)|"
    r"by (?:specifying|its|id|using)|with (?:the )?(?:given|specified)|according to|that |which |, |\(|"
    r"in (?:the|a) (?:specified|given|specific)|from (?:the|a) (?:specified|given)|of (?:the|a) (?:specified|given)|within|"
    r"between|at (?:the|a) (?:specified|given))"
)
_EXAMPLES = re.compile(
    r"(?:e\.g\.?,?|such as|for example,?|like|either|options are|values? (?:are|include)|Options:)"
    r"\s*:?\s*(.+?)(?:\)|\.\s|\.$|$)"
)
# Kind of value by what the name of the parameter says; the first that matches.
_KINDS = (
    (r"email|recipient$", "email"), (r"\bcity|location|place|town|destination|origin|departure|arrival|\bregion", "city"),
    (r"country|nation", "country"), (r"language|lang\b|locale", "language"), (r"currency", "currency"),
    (r"colou?r", "color"), (r"symbol|ticker", "ticker"), (r"company|brand|organi[sz]ation|vendor|business", "company"),
    (r"dish|food|meal|cuisine", "food"), (r"ingredient", "ingredient"), (r"\bdate|deadline|birthday", "day"),
    (r"\btime ?zone", "timezone"), (r"\btime\b|hour", "time"), (r"url|link|website|uri|endpoint", "url"),
    (r"folder|directory", "directory"), (r"path|file", "path"), (r"uuid|guid", "uuid"), (r"version", "version"),
    (r"\bids?\b|identifier|number|code|\barn\b|key|token|sku", "code"), (r"user ?name|login", "username"),
    (r"author|artist|actor|person|owner|assignee|customer|patient|employee|first|last|full name|contact", "person"),
    (r"player|student", "person"),
    (r"query|keyword|topic|subject|search|category|genre|interest", "topic"),
    (r"text|message|content|body|description|comment|note|sentence|summary|caption|prompt|question|reason", "sentence"),
    (r"title", "title"), (r"phone", "phone"), (r"branch", "branch"), (r"repo", "repo"), (r"room", "room"),
    (r"address", "address"), (r"name", "slug"),
)  # fmt: skip
# How an argument is put into the sentence, by the name of its parameter.
_PHRASES = (
    (r"location|city|place|region|country|venue|market", ("in {}", "for {}", "at {}")),
    (r"start|from|source|origin|departure|since", ("from {}", "starting {}", "starting from {}")),
    (r"\bend\b|until", ("to {}", "until {}")),
    (r"\bto\b|destination|target|recipient|arrival", ("to {}",)),
    (r"\bdate|\bday", ("on {}", "for {}")),
    (r"\btime|hour", ("at {}",)),
    (r"\bname|title", ("called {}", "named {}", "for {}")),
    (r"author|artist|owner|\bby", ("by {}",)),
    (r"query|topic|keyword|subject", ("about {}", "for {}", "on {}")),
    (r"\bids?$|identifier|key$", ("for {}", "with id {}", "{}", "with ID {}")),
    (r"limit|results", ("limited to {}", "at most {}", "up to {}", "only {} results")),
    (r"max|count|number of|size", ("limited to {}", "at most {}", "up to {}")),
    (r"language", ("in {}",)),
    (r"year", ("in {}", "from {}", "for the year {}")),
    (r"unit|currency|format", ("in {}", "using {}")),
)
_PLAIN_PHRASES = (
    "with {k} {v}", "where {k} is {v}", "{k}: {v}", "{k} = {v}", "using {v} as the {k}", "for {k} {v}",
    "and the {k} is {v}", "with the {k} set to {v}", "the {k} should be {v}", "for the {k} {v}", "of {k} {v}", "{k} {v}",
)  # fmt: skip


def _base_verb(word: str) -> str:
    low = word.lower()
    if low.endswith("ies") and len(low) > 4:
        return low[:-3] + "y"
    if re.search(r"(ch|sh|ss|x|zz)es$", low):
        return low[:-2]
    return low[:-1] if low.endswith("s") and not low.endswith("ss") and len(low) > 3 else low


def simple(tool: dict[str, Any]) -> bool:
    """Whether a request can be made out of the schema: no needed argument is an object."""
    parameters = tool["parameters"]
    return all(parameters["properties"][name].get("type") != "object" for name in parameters["required"])


class SchemaRequests:
    """Makes requests for tools of which only the schema is known."""

    def __init__(self, values: Values) -> None:
        self.values = values

    # Values --------------------------------------------------------------------------------------------------------------

    def value(self, name: str, schema: dict[str, Any]) -> Said:
        """A value that fits the parameter, and its words."""
        values, kind = self.values, schema.get("type", "string")
        description, words = schema.get("description") or "", human(name)
        if options := schema.get("enum"):
            option = values.pick(options)
            spoken = str(option)
            return Said(
                option, spoken.replace("_", " ").lower() if isinstance(option, str) and values.chance(0.5) else spoken
            )
        if kind == "boolean":
            return Said(yes := values.chance(0.7), str(yes).lower())
        if kind in ("integer", "number"):
            return self._number(kind, words, description)
        if kind == "array":
            return self._array(name, schema, description)
        return self._formatted(words, description) or self.text(name, description)

    def _number(self, kind: str, words: str, description: str) -> Said:
        values = self.values
        if "year" in words and "years" not in words:
            return values.integer(1990, 2026)
        about = f"{words} {description.lower()}"
        if kind == "number" and re.search(r"percent|rate|ratio|probab|fraction", about) and values.chance(0.6):
            percent = values.rng.randint(1, 60)
            fraction = re.search(r"fraction|decimal|0 (?:to|and) 1\b|0-1|between 0", about) and "percent" not in words
            return Said(percent / 100 if fraction else percent, f"{percent}{values.pick(['%', ' percent', ' %'])}")
        if "minute" in about and "per minute" not in about and values.chance(0.5):
            return values.minutes()
        if re.search(r"\bseconds?\b", about) and "per second" not in about and values.chance(0.5):
            return values.seconds()
        return values.some_integer() if kind == "integer" else values.number()

    def _array(self, name: str, schema: dict[str, Any], description: str) -> Said:
        values = self.values
        kind = (schema.get("items") or {}).get("type", "string")
        count = values.rng.randint(1, 4)
        if kind in ("integer", "number"):
            numbers = [
                values.rng.randint(1, 100)
                if kind == "integer" or values.chance(0.5)
                else round(values.rng.uniform(0, 50), 1)
                for _ in range(count + 1)
            ]
            return Said(numbers, values.listed([str(number) for number in numbers]))
        texts = list(dict.fromkeys(self.text(name.rstrip("s"), description).value for _ in range(count)))
        return Said(texts, values.listed(texts))

    def _formatted(self, words: str, description: str) -> Said | None:
        """A value in a format that the description demands."""
        about = f"{words} {description.lower()}"
        form = re.search(r"YYYY-MM-DD|yyyy-mm-dd|YYYY/MM/DD|MM/DD/YYYY|DD/MM/YYYY|ISO", description)
        if form and re.search(r"date|day|check.?in|check.?out|departure|birth", about):
            return self._date(form[0])
        if re.search(r"location|city|place|where|destination|origin", words):
            if re.search(r"[A-Z][a-z]+, ?[A-Z]{2}\b|state", description):
                return self._place(WORDS["us_states"])
            if re.search(r"country|[A-Z][a-z]+, [A-Z][a-z]{3,}", description):
                return self._place(WORDS["city_countries"])
        return None

    def _date(self, form: str) -> Said:
        values = self.values
        year, month, day = values.rng.randint(1950, 2027), values.rng.randint(1, 12), values.rng.randint(1, 28)
        name = WORDS["months"][month - 1]
        written = {
            "YYYY/MM/DD": f"{year}/{month:02d}/{day:02d}",
            "MM/DD/YYYY": f"{month:02d}/{day:02d}/{year}",
            "DD/MM/YYYY": f"{day:02d}/{month:02d}/{year}",
        }
        value = written.get(form, f"{year}-{month:02d}-{day:02d}")
        return Said(
            value,
            values.pick(
                [
                    value,
                    f"{name} {day}, {year}",
                    f"{day} {name} {year}",
                    f"{name} {ordinal(day)} {year}",
                    f"the {ordinal(day)} of {name} {year}",
                ]
            ),
        )

    def _place(self, places: dict[str, str]) -> Said:
        city = self.values.pick(list(places))
        whole = f"{city}, {places[city]}"
        return Said(whole, self.values.pick([whole, whole, city]))

    def text(self, name: str, description: str) -> Said:
        """A string for the parameter: one of the description's examples, or a value of the kind that its name says."""
        values = self.values
        if (found := _EXAMPLES.search(description)) and values.chance(0.5):
            options = [part.strip(" '\"`.") for part in re.split(r",|\bor\b|\band\b|/(?=\s)", found[1])]
            options = [option for option in options if 1 < len(option) < 32 and not re.search(r"etc|default|format", option)]
            if options:
                return Said(option := values.pick(options), option)
        words = human(name)
        for pattern, kind in _KINDS:
            if re.search(pattern, words):
                return Said(value := values.sample(kind).value, value)
        return Said(value := values.sample(values.pick(["slug", "code", "noun", "topic", "title"])).value, value)

    # Requests ------------------------------------------------------------------------------------------------------------

    def action(self, tool: dict[str, Any]) -> tuple[str, bool]:
        """A phrase for what the tool does, and whether it starts with a verb."""
        values = self.values
        words = re.split(r"(?<=[a-z)])\.\s", tool["description"].strip())[0].rstrip(".").split()
        if not 3 <= len(words) <= 24 or words[0].lower() in _NO_VERB or values.chance(0.15):
            words = (
                ["get", *words[1:]]
                if words and words[0].lower() == "returns"
                else human(tool["name"].split(".")[-1]).split() or ["use"]
            )
        third_person = words[0][0].isupper() and len(words) > 1 and words[0].endswith("s")
        verb, rest = _base_verb(words[0]) if third_person else words[0].lower(), " ".join(words[1:])
        if values.chance(0.75):
            rest = _TAIL.split(rest + " ")[0].strip()
        rest = re.sub(r"\b(specified|given|specific|particular|certain) ", "", rest)
        if verb in _READING and rest and values.chance(0.2):
            form = values.pick(
                ["what is {}", "what's {}", "I need {}", "give me {}", "I'm looking for {}", "tell me {}", "{}"]
            )
            return form.format(rest), False
        return f"{values.pick(_SYNONYMS.get(verb, (verb,)))} {rest}".strip(), True

    def wrap(self, text: str, *, verb: bool) -> str:
        """The request as a sentence."""
        if verb:
            text = self.values.pick(_WRAPS).format(text)
        elif text.startswith("what") and self.values.chance(0.7):
            text += "?"
        return text[0].upper() + text[1:] if self.values.chance(0.6) else text

    def phrase(self, name: str, schema: dict[str, Any], said: Said) -> str:
        """The words that put one argument into the request."""
        values, words, kind = self.values, human(name), schema.get("type")
        if kind == "boolean":
            without = re.sub(r"^(include|is|has|with|enable|use) ", "", words)
            return values.pick([
                f"with {words} {'on' if said.value else 'off'}", f"{words}: {said.spoken}", f"set {words} to {said.spoken}",
                f"{words} should be {said.spoken}", ("with " if said.value else "without ") + without,
            ])  # fmt: skip
        spoken = said.spoken
        if (
            kind == "string"
            and not schema.get("enum")
            and (values.chance(0.3) or (" " in spoken and len(spoken) > 25))
            and said.value == spoken
        ):
            spoken = quoted(spoken, values)
        if values.chance(0.5):
            for pattern, phrases in _PHRASES:
                if re.search(pattern, words):
                    return values.pick(phrases).format(spoken)
        return values.pick(_PLAIN_PHRASES).format(k="query" if words == "q" else words, v=spoken)

    def arguments(self, tool: dict[str, Any]) -> dict[str, Said]:
        """Values for the required parameters and some of the others."""
        values, parameters = self.values, tool["parameters"]
        required = set(parameters["required"])
        optional = [
            name
            for name, schema in parameters["properties"].items()
            if name not in required and schema.get("type") != "object"
        ]
        count = min(values.pick([0, 0, 0, 1, 1, 2, 3] if required else [0, 1, 1, 2, 3]), len(optional))
        chosen = required | set(values.rng.sample(optional, count))
        return {name: self.value(name, schema) for name, schema in parameters["properties"].items() if name in chosen}

    def request(self, tool: dict[str, Any], *, without: str = "", given: dict[str, Said] | None = None) -> Request:
        """A request for the tool; `without` stays unsaid, `given` are arguments in place of drawn ones."""
        values, properties = self.values, tool["parameters"]["properties"]
        args = self.arguments(tool) if given is None else given
        action, verb = self.action(tool)
        said = {name: value for name, value in args.items() if name != without}
        phrases = [self.phrase(name, properties[name], value) for name, value in said.items()]
        if values.chance(0.3):
            values.rng.shuffle(phrases)
        if phrases and values.chance(0.12):
            known = ", ".join(f"{human(name)} {value.spoken}" for name, value in said.items())
            start = values.pick(["I have", "Given", "With", "For", "Here is what I know:", "Use"])
            text, verb = f"{start} {known}{values.pick(['. ', '; ', ', '])}{action}", False
        else:
            between = values.pick([" ", " ", " ", ", "])
            *head, last = phrases or [""]
            text = f"{action} {between.join(head)}{values.pick([' and ', ', ', ' ']) if head else ''}{last}".strip()
        return Request(
            self.wrap(text, verb=verb),
            {name: value.value for name, value in args.items()},
            {name: value.spoken for name, value in args.items()},
        )
