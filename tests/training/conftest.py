"""The folder `training/` is no part of the package: it is imported from the repository itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from training.corpus import Corpus, excluded_names

from training import families


def _tool(name: str, description: str, source: str, required: list[str], /, **properties: str) -> dict[str, object]:
    schemas = {key: {"type": kind, "description": ""} for key, kind in properties.items()}
    return {
        "name": name,
        "description": description,
        "parameters": {"properties": schemas, "required": required},
        "source": source,
    }


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    """The families with a handful of other tools and requests, without anything downloaded."""
    seal = [
        _tool("getTide", "Get the tide at a harbour", "seal:sea", ["harbour"], harbour="string", days="integer"),
        _tool("addBuoy", "Add a buoy to the chart", "seal:sea", ["name"], name="string", depth="number", lit="boolean"),
        _tool("findWreck", "Find wrecks near a place", "seal:sea", [], place="string", limit="integer"),
    ]
    bfcl = [_tool("area.circle", "Calculate the area of a circle.", "bfcl", ["radius"], radius="number", unit="string")]
    api = [_tool("ec2.StopFleet", "Stops a fleet.", "boto:ec2", ["FleetId"], FleetId="string", DryRun="boolean")]
    case = {
        "id": "simple_0",
        "question": "What is the area of a circle with radius 12 in cm?",
        "tools": bfcl,
        "wanted": [{"area.circle": {"radius": [12], "unit": ["cm", ""]}}],
        "system": "",
    }
    return Corpus(
        pools={"seal": seal, "bfcl": bfcl, "api": api},
        groups={"seal:sea": seal, "bfcl": bfcl, "boto:ec2": api},
        seal_by_name={tool["name"]: tool for tool in seal},
        requests={
            "bfcl": [case, case | {"wanted": [], "question": "Who won the race?"}],
            "seal": [{"question": "When is high water in Dover?", "calls": [["getTide", {"harbour": "Dover"}]]}],
            "snips": [{"intent": "GetWeather", "question": "will it snow in Oslo", "slots": {"city": "Oslo"}}],
            "nlu": [{"intent": "alarm_set", "question": "wake me at seven", "slots": {"time": "seven"}}],
        },
        slots={"GetWeather": ["city"], "alarm_set": ["time", "date"]},
        families=tuple(tool for tool in families.load() if not excluded_names() & {name for name, _ in tool.names}),
        banned={"wake me at seven"},
        excluded=excluded_names(),
        vocabulary=["harvest", "payments", "lantern", "quarter", "ridge"],
    )
