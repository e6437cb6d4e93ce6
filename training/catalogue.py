"""Tools and requests of public packages and data sets, in one shape.

Folders, wheels and git copies come in; plain records go out: tools (`name`, `description`, `parameters`, `source`) and
requests with the calls that are wanted. BFCL is split by the name of its functions (`held_out`), so that what is tested
on was never trained on. Nothing here is random, and nothing is downloaded here.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import subprocess
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BFCL_SETS = (
    "simple_python", "multiple", "parallel", "parallel_multiple", "live_simple", "live_multiple", "live_parallel",
    "live_parallel_multiple", "irrelevance", "live_irrelevance",
)  # fmt: skip
SNIPS_INTENTS = (
    "BookRestaurant", "AddToPlaylist", "GetWeather", "PlayMusic", "RateBook", "SearchScreeningEvent", "SearchCreativeWork",
)  # fmt: skip
NLU_FILE = (
    "CrossValidation/out4RasaReal/rasa_json_2018_03_22-13_01_25_169_80Train/CrossValidation/KFold_4/merged/"
    "RasaNlu_Merged_KFold_4_2018_03_22-13_01_25_169.json"
)
_TYPES = {
    "dict": "object", "float": "number", "int": "integer", "str": "string", "bool": "boolean", "tuple": "array",
    "list": "array", "any": "string", "Any": "string", "String": "string", "long": "integer", "double": "number",
}  # fmt: skip
_BOTO_TYPES = {
    "string": "string", "integer": "integer", "long": "integer", "boolean": "boolean", "float": "number",
    "double": "number", "list": "array", "timestamp": "string",
}  # fmt: skip
_ENUM_MAX, _PARAMETERS_MAX, _REQUIRED_MAX = 8, 10, 4


def held_out(name: str) -> bool:
    """Whether a BFCL function is kept for testing: 4 of 10, by the hash of its name."""
    return int(hashlib.md5(name.encode()).hexdigest(), 16) % 10 >= 6


def clean(text: str | None) -> str:
    """Text without markup and line breaks."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text or "")).strip()


def tool(name: str, description: str, parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A tool record."""
    return {"name": name, "description": clean(description), "parameters": parameters, **more}


def _parameter(kind: str | None, description: str = "", enum: list[Any] | None = None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _TYPES.get(kind or "string", kind or "string"), "description": clean(description)}
    if enum:
        schema["enum"] = list(enum)
    return schema


def _type_name(schema: Any) -> str:
    kind = schema.get("type", "string") if isinstance(schema, dict) else "string"
    return _TYPES.get(kind, kind) if isinstance(kind, str) else "string"


def plain_parameters(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON schema of parameters in the few words that the prompt format shows."""
    properties: dict[str, Any] = {}
    for name, given in (schema.get("properties") or {}).items():
        if not isinstance(given, dict):
            continue
        kind = given.get("type")
        if isinstance(kind, list):
            kind = next((option for option in kind if option != "null"), "string")
        if kind is None:
            kind = "object" if ("anyOf" in given or "$ref" in given) and "enum" not in given else "string"
        plain = _parameter(kind, given.get("description", ""), given.get("enum"))
        if plain["type"] == "array":
            plain["items"] = {"type": _type_name(given.get("items"))}
        if given.get("default") not in (None, ""):
            plain["default"] = given["default"]
        if plain["type"] == "object" and isinstance(given.get("properties"), dict):
            plain["properties"] = {
                key: {"type": _type_name(inner), "description": clean(inner.get("description", ""))[:80]}
                for key, inner in given["properties"].items()
                if isinstance(inner, dict)
            }
        properties[name] = plain
    return {"properties": properties, "required": [name for name in schema.get("required") or [] if name in properties]}


# BFCL --------------------------------------------------------------------------------------------------------------------


def _json_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def read_bfcl(folder: Path) -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]], list[dict[str, Any]]]:
    """BFCL's single-turn cases: those to train on, those to test on by set, and the tools that may be trained on."""
    train: list[dict[str, Any]] = []
    test: dict[str, list[dict[str, Any]]] = {}
    tools: dict[str, dict[str, Any]] = {}
    for name in BFCL_SETS:
        answers_file = folder / "possible_answer" / f"BFCL_v4_{name}.json"
        answers = {item["id"]: item["ground_truth"] for item in _json_lines(answers_file)} if answers_file.exists() else {}
        for entry in _json_lines(folder / f"BFCL_v4_{name}.json"):
            case = _bfcl_case(entry, answers)
            if case is None:
                continue
            tools |= {item["name"]: item for item in case["tools"] if not held_out(item["name"])}
            names = [key for wanted in case["wanted"] for key in wanted] or [case["tools"][0]["name"]]
            if all(map(held_out, names)):
                test.setdefault(name, []).append(case)
            elif not any(map(held_out, names)):
                train.append(case | {"tools": [item for item in case["tools"] if not held_out(item["name"])]})
    return train, test, [item | {"source": "bfcl"} for item in tools.values()]


def _bfcl_case(entry: dict[str, Any], answers: dict[str, Any]) -> dict[str, Any] | None:
    messages = entry["question"][0]
    system = [message["content"] for message in messages if message["role"] == "system"]
    user = [message["content"] for message in messages if message["role"] == "user"]
    if len(messages) > 1 + len(system) or not user or not entry["function"]:
        return None
    tools = [tool(item["name"], item["description"], plain_parameters(item["parameters"])) for item in entry["function"]]
    return {
        "id": entry["id"], "question": user[0], "tools": tools, "wanted": answers.get(entry["id"], []),
        "system": system[0] if system else "",
    }  # fmt: skip


# Data sets kept in git ---------------------------------------------------------------------------------------------------


def git_file(repository: Path, path: str) -> str:
    """A file of the newest commit of a git directory."""
    command = ["git", f"--git-dir={repository}", "show", f"HEAD:{path}"]
    return subprocess.run(command, capture_output=True, check=True).stdout.decode("utf-8", "replace")


def read_seal(repository: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Seal-Tools: its tools, and the requests of its development and test files with at most three independent calls."""
    tools: dict[str, dict[str, Any]] = {}
    for line in git_file(repository, "Seal-Tools_Dataset/tool.jsonl").splitlines():
        item = json.loads(line)
        properties = {
            name: _parameter(value.get("type"), value.get("description")) for name, value in item["parameters"].items()
        }
        required = [name for name in item.get("required", []) if name in properties]
        parameters = {"properties": properties, "required": required}
        group = "seal:" + item["field"].split("/")[0]
        tools[item["api_name"]] = tool(item["api_name"], item["api_description"], parameters, source=group)
    requests = []
    for name in ("dev", "test_in_domain", "test_out_domain"):
        for line in git_file(repository, f"Seal-Tools_Dataset/{name}.jsonl").splitlines():
            item = json.loads(line)
            calls = [[call["api"], call["parameters"]] for call in item["calling"]]
            nested = any(api not in tools or "API_call_" in json.dumps(args) for api, args in calls)
            if not nested and len(calls) <= 3:
                requests.append({"question": item["query"], "calls": calls})
    return list(tools.values()), requests


def read_snips(repository: Path) -> list[dict[str, Any]]:
    """SNIPS: utterances with their intent and slots."""
    requests = []
    for intent in SNIPS_INTENTS:
        path = f"2017-06-custom-intent-engines/{intent}/train_{intent}_full.json"
        for item in json.loads(git_file(repository, path))[intent]:
            slots: dict[str, str] = {}
            for piece in item["data"]:
                if "entity" in piece:
                    slots.setdefault(piece["entity"], piece["text"].strip())
            text = "".join(piece["text"] for piece in item["data"]).strip()
            requests.append({"intent": intent, "question": text, "slots": slots})
    return requests


def read_nlu(repository: Path) -> list[dict[str, Any]]:
    """NLU-Evaluation-Data: utterances with their intent and slots."""
    requests = []
    for item in json.loads(git_file(repository, NLU_FILE))["rasa_nlu_data"]["common_examples"]:
        slots: dict[str, str] = {}
        for entity in item.get("entities", []):
            slots.setdefault(entity["entity"], entity["value"])
        requests.append({"intent": item["intent"], "question": item["text"], "slots": slots})
    return requests


# Schemas of client libraries ---------------------------------------------------------------------------------------------


def read_google(wheel: Path) -> Iterator[dict[str, Any]]:
    """Methods of the discovery documents in google-api-python-client."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".json") and "discovery_cache/documents" in name:
                yield from _google_methods(json.loads(archive.read(name)))


def _google_methods(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for method in (node.get("methods") or {}).values():
        properties = {}
        for name, given in (method.get("parameters") or {}).items():
            enum = given.get("enum") if len(given.get("enum") or []) <= _ENUM_MAX else None
            properties[name] = _parameter(given.get("type"), given.get("description", "")[:140], enum)
        required = [name for name, given in (method.get("parameters") or {}).items() if given.get("required")]
        if _fits(properties, required) and method.get("description"):
            parameters = {"properties": properties, "required": required}
            group = "google:" + method["id"].split(".")[0]
            yield tool(method["id"], method["description"][:220], parameters, source=group)
    for resource in (node.get("resources") or {}).values():
        yield from _google_methods(resource)


def read_botocore(wheel: Path) -> Iterator[dict[str, Any]]:
    """Operations of the service models in botocore."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not re.search(r"service-2\.json(\.gz)?$", name):
                continue
            raw = archive.read(name)
            model = json.loads(gzip.decompress(raw) if name.endswith(".gz") else raw)
            service = name.split("/")[-3]
            for operation in model["operations"].values():
                if found := _boto_tool(service, operation, model["shapes"]):
                    yield found


def _boto_tool(service: str, operation: dict[str, Any], shapes: dict[str, Any]) -> dict[str, Any] | None:
    description = clean(operation.get("documentation"))
    if not operation.get("input") or not description:
        return None
    shape = shapes[operation["input"]["shape"]]
    properties = {}
    for name, member in shape.get("members", {}).items():
        given = shapes[member["shape"]]
        kind = _BOTO_TYPES.get(given["type"])
        if kind is None or (kind == "array" and shapes[given["member"]["shape"]]["type"] != "string"):
            continue
        enum = given.get("enum") if len(given.get("enum") or []) <= _ENUM_MAX else None
        properties[name] = _parameter(kind, clean(member.get("documentation"))[:140], enum)
        if kind == "array":
            properties[name]["items"] = {"type": "string"}
    required = list(shape.get("required", []))
    if not _fits(properties, required):
        return None
    parameters = {"properties": properties, "required": required}
    return tool(f"{service}.{operation['name']}", description[:220], parameters, source="boto:" + service)


def _fits(properties: dict[str, Any], required: list[str]) -> bool:
    known = all(name in properties for name in required)
    return known and 1 <= len(properties) <= _PARAMETERS_MAX and len(required) <= _REQUIRED_MAX


def spread(tools: list[dict[str, Any]], *, each_max: int, all_max: int) -> list[dict[str, Any]]:
    """Some of the tools, not too many of one service; which ones is decided by the hash of their names."""
    kept, seen = [], Counter()
    for item in sorted(tools, key=lambda item: hashlib.md5(item["name"].encode()).hexdigest()):
        if seen[item["source"]] < each_max:
            seen[item["source"]] += 1
            kept.append(item)
    return kept[:all_max]
