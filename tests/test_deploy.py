"""The container file and the systemd unit do what they say, as far as this can be seen without a container engine."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from callgate import Gate, ScriptedModel
from callgate.cli import cli
from callgate.server import Service
from callgate.server.metrics import text_of

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"


@pytest.mark.slow
def test_the_steps_of_the_container_file_make_a_service_that_is_healthy_and_ends_in_good_order() -> None:
    command = [sys.executable, str(DEPLOY / "rehearse.py"), "--offline"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the container's service is healthy" in done.stdout
    assert "the unit's service is healthy" in done.stdout


def test_the_container_runs_as_nobody_special_and_hides_no_secret_in_its_layers() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    assert text.index("\nUSER callgate") < text.index("\nENTRYPOINT")
    assert not re.search(r"^(ENV|ARG|RUN|COPY).*(KEY|TOKEN|SECRET)", text, re.MULTILINE)
    sources = re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE)
    for source in " ".join(sources).split():
        assert (DEPLOY.parent / source).exists()


def test_the_unit_locks_the_service_in_and_gives_it_time_to_end() -> None:
    unit = configparser.RawConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((DEPLOY / "callgate.service").read_text())
    service = unit["Service"]
    for name in ("DynamicUser", "NoNewPrivileges", "ProtectHome", "PrivateTmp", "ProtectKernelModules"):
        assert service[name] == "yes"
    words = service["ExecStart"].split()
    stop_s = float(words[words.index("--stop-s") + 1])
    assert float(service["TimeoutStopSec"]) >= stop_s + 10
    shown = CliRunner().invoke(cli, ["serve", "--help"]).output
    assert all(word in shown for word in words if word.startswith("--"))


def test_systemd_itself_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on this machine; the other tests read the unit")
    unit = tmp_path / "callgate.service"
    unit.write_text((DEPLOY / "callgate.service").read_text().replace("/opt/callgate/bin/callgate", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert "callgate.service" not in done.stderr, done.stderr


def test_the_dashboard_and_the_alerts_use_metrics_that_the_service_has_and_each_alert_has_a_runbook(tmp_path: Path) -> None:
    shown = text_of(Service(Gate(ScriptedModel([]), store=str(tmp_path / "unused.db"))))
    known = set(re.findall(r"^# TYPE (\w+)", shown, re.MULTILINE))
    known |= {f"{name}_{part}" for name in known for part in ("bucket", "sum", "count")}
    dashboard, alerts = json.loads((DEPLOY / "grafana.json").read_text()), (DEPLOY / "alerts.yml").read_text()
    asked = [alerts, *(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])]
    used = {name for text in asked for name in re.findall(r"\b(?:callgate|process)_\w+", text)}
    assert sorted(used - known) == []
    headings = re.findall(r"^### (Callgate\w+)$", (DEPLOY.parent / "docs" / "operations.md").read_text(), re.MULTILINE)
    assert headings == re.findall(r"- alert: (\w+)", alerts)
