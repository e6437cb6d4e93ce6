"""The container file and the systemd unit do what they say, as far as this can be seen without a container engine."""

from __future__ import annotations

import asyncio
import configparser
import http.client
import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from callgate import Gate, ScriptedModel
from callgate.cli import cli
from callgate.server import Service, ServiceOptions
from callgate.server.metrics import text_of

from .server.conftest import serving

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

    async def text() -> str:
        return await text_of(Service(Gate(ScriptedModel([]), store=str(tmp_path / "unused.db"))))

    shown = asyncio.run(text())
    known = set(re.findall(r"^# TYPE (\w+)", shown, re.MULTILINE))
    known |= {f"{name}_{part}" for name in known for part in ("bucket", "sum", "count")}
    dashboard, alerts = json.loads((DEPLOY / "grafana.json").read_text()), (DEPLOY / "alerts.yml").read_text()
    asked = [alerts, *(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])]
    used = {name for text in asked for name in re.findall(r"\b(?:callgate|process)_\w+", text)}
    assert sorted(used - known) == []
    headings = re.findall(r"^### (Callgate\w+)$", (DEPLOY.parent / "docs" / "operations.md").read_text(), re.MULTILINE)
    assert headings == re.findall(r"- alert: (\w+)", alerts)


# Compose, Kubernetes, nginx -----------------------------------------------------------------------------------------------


def serve_options() -> str:
    return CliRunner().invoke(cli, ["serve", "--help"]).output


def test_the_compose_file_has_two_services_a_database_and_a_proxy_and_only_names_what_is_there() -> None:
    compose: Any = yaml.safe_load((DEPLOY / "compose.yml").read_text())
    assert set(compose["services"]) == {"service-1", "service-2", "postgres", "proxy"}
    for name in ("service-1", "service-2"):
        service = compose["services"][name]
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
        (command,) = service["command"]
        assert all(word in serve_options() for word in re.findall(r"--[\w-]+", command))
        assert set(re.findall(r"/run/secrets/([\w-]+)", command)) == set(service["secrets"])
        stop_s = float(re.findall(r"--stop-s (\d+)", command)[0])
        assert float(service["stop_grace_period"].removesuffix("s")) >= stop_s + 30
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    named = {secret for service in compose["services"].values() for secret in service.get("secrets", [])}
    assert named == set(compose["secrets"])
    upstreams = re.findall(r"server ([\w-]+):8081", (DEPLOY / "nginx.conf").read_text())
    assert upstreams == ["service-1", "service-2"]


def test_the_manifests_probe_what_answers_by_ip_and_let_the_service_write_its_volume() -> None:
    found: Any = {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes" / "callgate.yml").read_text())}
    assert set(found) == {"Deployment", "Service", "PodDisruptionBudget"}
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsUser"] == 10001
    assert "--uid 10001" in (DEPLOY / "Containerfile").read_text()
    assert all(word in serve_options() for word in container["args"] if word.startswith("--"))
    stop_s = float(container["args"][container["args"].index("--stop-s") + 1])
    assert pod["terminationGracePeriodSeconds"] >= stop_s + 30
    paths = {container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    with serving(Service(Gate(ScriptedModel([])), options=ServiceOptions(token="t" * 40))) as site:
        assert {path: site.get(path, Host="10.1.2.3:8081").status for path in paths} == {"/livez": 200, "/health": 200}
    assert not re.search(r"(KEY|TOKEN|PASSWORD): *\S", json.dumps(container))


@pytest.mark.slow
def test_nginx_passes_chats_and_streams_on_with_tls(needs, tmp_path: Path) -> None:
    program = needs("nginx")
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost"]
    command = ["openssl", *words.split(), *names, "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = ServiceOptions(token="t" * 40, origins=(f"https://localhost:{port}",))
    with serving(Service(Gate(ScriptedModel(["Hi."], repeat_last=True)), options=options)) as site:
        config = (DEPLOY / "nginx.conf").read_text()
        for old, new in {
            "service-1:8081": f"127.0.0.1:{site.port}",
            "        server service-2:8081 max_fails=2 fail_timeout=1s;\n": "",
            "listen 8443": f"listen 127.0.0.1:{port}",
            "/etc/callgate/": f"{tmp_path}/",
            "/tmp/nginx": f"{tmp_path}/nginx",
        }.items():
            assert old in config
            config = config.replace(old, new)
        (tmp_path / "nginx.conf").write_text(config)
        nginx = [program, "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path), "-g", "daemon off;"]
        process = subprocess.Popen(nginx, stderr=subprocess.PIPE)
        try:
            site.until(lambda: process.poll() is not None or is_open(port), "nginx")
            trusted = ssl.create_default_context(cafile=str(cert))
            connection = http.client.HTTPSConnection("localhost", port, context=trusted, timeout=60)
            head = {"Content-Type": "application/json", "Authorization": f"Bearer {'t' * 40}"}
            for more, kind in (({}, "application/json"), ({"stream": True}, "text/event-stream")):
                connection.request("POST", "/api/v1/chat", json.dumps({"prompt": "hi", **more}), head)
                answer = connection.getresponse()
                assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, kind)
                assert b"Hi." in answer.read()
            connection.request("POST", "/api/v1/chat", json.dumps({"prompt": "hi"}), {"Content-Type": "application/json"})
            assert connection.getresponse().status == 401
            connection.close()
        finally:
            process.terminate()
            process.wait(60)
            assert process.stderr is not None
            process.stderr.close()


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
