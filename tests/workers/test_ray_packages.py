"""The extra `ray` brings what joins a cluster, whatever else is installed where the tests run."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[2]
JOINING = """
import sys
refused = set(sys.argv[1:])

class Refusal:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in refused:
            raise ModuleNotFoundError(f"{name} is not installed")

sys.meta_path.insert(0, Refusal())
import callgate.workers.ray_worker
from ray.util.client import worker  # What `ray.init("ray://...")` imports.
from ray.util.client.server import server  # And `ray start --head --ray-client-server-port=...`.
print("all there")
"""


def brought(requirement: Requirement, found: set[str]) -> set[str]:
    """The packages that an installer adds for a requirement, and those that they require."""
    name = canonicalize_name(requirement.name)
    marks = {f"{name}[{extra}]" for extra in requirement.extras or {""}}
    if not marks <= found:
        found |= marks | {name}
        for line in metadata.requires(name) or []:
            needed = Requirement(line)
            if needed.marker is None or any(
                needed.marker.evaluate({"extra": extra}) for extra in requirement.extras or {""}
            ):
                brought(needed, found)
    return found


@pytest.mark.slow
def test_the_extra_for_ray_brings_every_package_that_its_client_and_server_need() -> None:
    pytest.importorskip("ray")
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    there = {"callgate", "psutil", "colorama"}  # Ray has copies of the last two in its own files.
    for line in (*project["dependencies"], *project["optional-dependencies"]["ray"]):
        brought(Requirement(line), there)
    owners = metadata.packages_distributions()
    refused = [name for name, packages in owners.items() if there.isdisjoint(map(canonicalize_name, packages))]
    assert "numpy" in refused
    command = [sys.executable, "-c", JOINING, *refused]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "all there\n", done.stderr
