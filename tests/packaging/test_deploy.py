"""The files of `deploy` agree with the code: commands, settings, ports, probes, versions, rights.

Neither Docker nor a cluster runs here. The commands of the compose file are parsed, or run without containers in
`test_commands.py`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from magnetar.admin.routes import ROUTES
from magnetar.bounds import STOP_WAIT
from magnetar.cli.app import command_for
from magnetar.cli.nouns import standalone
from magnetar.settings.environment import read_environment
from magnetar.settings.settings import KINDS
from magnetar.version import __version__

from .builds import ROOT, environment
from .deployment import (
    COMPOSE,
    DEPLOY,
    DOCKERFILE,
    KUBERNETES,
    UNIT,
    compose,
    exec_form,
    last,
    manifests,
    option,
    setting,
    stages,
    unit,
    variables,
)

STAGES = stages()
SERVICES: dict[str, Any] = compose()["services"]
BROKERS = ("east", "west")
MANIFESTS = manifests("namespace.yaml", "broker.yaml")
PIPELINES = manifests("pipelines/account.yaml", "pipelines/pipelines.yaml")
POD = MANIFESTS["StatefulSet", "magnetar"]["spec"]["template"]["spec"]
(BROKER,) = POD["containers"]
APPLICATION = PIPELINES["SparkApplication", "magnetar-pipelines"]["spec"]
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and "__pycache__" not in path.parts)

BROKER_COMMANDS = {
    "Dockerfile": exec_form(last(STAGES[""], "CMD")),
    **{f"compose {name}": SERVICES[name]["command"] for name in BROKERS},
    "systemd": shlex.split(unit()["ExecStart"][0])[1:],
    "kubernetes": BROKER["args"],
}
SETUP = [line for line in SERVICES["setup"]["command"][0].splitlines() if line]
COMMANDS = {
    **{f"compose {name}": SERVICES[name]["command"] for name in ("pipelines-east", "pipelines-west")},
    **{
        f"setup {number}.{part}": shlex.split(one.replace(">/dev/null 2>&1", ""))[1:]
        for number, line in enumerate(SETUP)
        for part, one in enumerate(line.split("||"))
    },
    "SparkApplication": APPLICATION["arguments"],
}


@pytest.mark.parametrize("words", BROKER_COMMANDS.values(), ids=BROKER_COMMANDS)
def test_a_broker_would_start(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Options, settings and protection are those that the command accepts: also for the addresses it serves."""
    monkeypatch.setattr(os, "environ", environment())
    assert words[0] == "standalone"
    options = standalone.read_plain(words[1:])
    assert options is not None
    warnings: list[str] = []
    pairs = standalone.pairs_of(options, warnings.append)
    assert all("without authentication" in warning for warning in warnings)
    has_secure = options.secure is not None
    assert has_secure != options.without_authentication
    assert (pairs.get("authenticationEnabled") == "true") == has_secure
    assert option(words, "--data").startswith("/var/lib/magnetar/")


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_command_is_one_of_ours(words: list[str]) -> None:
    command: Any = command_for(words)
    rest = list(words)
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    command.make_context(command.name, rest)


# -- versions


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(DEPLOY).as_posix())
def test_versions_are_those_of_the_project(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(r"magnetar(?:-spark)?:([\w.]+\w)", text)) <= {__version__}
    assert ":latest" not in text


def test_every_image_has_a_tag() -> None:
    bases = {base for instructions in STAGES.values() for word, base in instructions if word == "FROM"} - set(STAGES)
    images = [service["image"] for service in SERVICES.values()] + [BROKER["image"], APPLICATION["image"]]
    for image in [*bases, *images]:
        assert re.fullmatch(r"[\w./-]+:\w*[0-9][\w.-]*", image), image
    (kustomized,) = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text(encoding="utf-8"))["images"]
    assert kustomized == {"name": "magnetar", "newTag": __version__}
    assert f'version="{__version__}"' in last(STAGES[""], "LABEL")


def test_spark_and_python_are_those_of_the_lock() -> None:
    lock = (ROOT / "requirements" / "run.txt").read_text(encoding="utf-8")
    (spark,) = re.findall(r"^pyspark==([\d.]+)", lock, re.MULTILINE)
    assert APPLICATION["sparkVersion"] == spark
    text = DOCKERFILE.read_text(encoding="utf-8")
    assert set(re.findall(r"python:?(3\.\d+)", text)) == {"3.13"}


# -- the image


@pytest.mark.parametrize("stage", ["", "spark"])
def test_an_image_runs_as_a_user_of_its_own(stage: str) -> None:
    assert last(STAGES[stage], "USER") == "10001:10001"
    assert last(STAGES[stage], "STOPSIGNAL") == "SIGTERM"
    assert last(STAGES[stage], "VOLUME") == "/var/lib/magnetar"
    assert exec_form(last(STAGES[stage], "ENTRYPOINT")) == ["magnetar" if not stage else "spark-entrypoint.sh"]


def test_the_image_checks_its_health() -> None:
    _, _, check = last(STAGES[""], "HEALTHCHECK").partition("CMD ")
    assert exec_form(check) == ["python", "/opt/magnetar/share/health.py"]
    words = BROKER_COMMANDS["Dockerfile"]
    environment = variables(STAGES[""])
    assert environment["HEALTH_URL"] == "https://127.0.0.1:8443/health/ready"
    assert environment["HEALTH_CA"] == f"{option(words, '--secure')}/ca.pem"


def test_what_the_image_copies_is_not_ignored() -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [
        source
        for word, rest in (one for instructions in STAGES.values() for one in instructions)
        if word == "COPY" and "--from" not in rest
        for source in [part for part in rest.split() if not part.startswith("--")][:-1]
    ]
    for source in copied:
        assert (ROOT / source).exists(), source
        assert any(source == path or source.startswith(f"{path}/") for path in kept), source


def test_variables_of_the_image_are_no_settings_by_mistake() -> None:
    for image in (variables(STAGES["spark"]), *(service.get("environment", {}) for service in SERVICES.values())):
        found = read_environment(image)
        assert (found.pairs, found.unknown) == ({}, [])


def test_settings_by_variables_of_the_unit() -> None:
    found = read_environment(dict(text.split("=", 1) for text in unit()["Environment"]))
    assert found.pairs == {"pipelinesLingerSeconds": "0"} and not found.unknown


# -- ports and probes

DEFAULT_PORTS = {"6650", "8080", "6651", "8443"}


def test_ports_are_the_documented_ones() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert set(last(STAGES[""], "EXPOSE").split()) == DEFAULT_PORTS
    assert KINDS["brokerServicePort"] and "`6650`" in page and "`8080`" in page
    ports = {port["name"]: port["containerPort"] for port in BROKER["ports"]}
    assert ports == {"binary-tls": 6651, "https": 8443}
    service = MANIFESTS["Service", "magnetar"]["spec"]
    assert {port["targetPort"]: port["port"] for port in service["ports"]} == ports
    assert (
        service["selector"].items()
        <= MANIFESTS["StatefulSet", "magnetar"]["spec"]["template"]["metadata"]["labels"].items()
    )


@pytest.mark.parametrize("name", BROKERS)
def test_a_broker_of_the_compose_file_has_the_same_ports_outside(name: str) -> None:
    """Or the answer of a lookup would be right on one side only; and on the loopback alone, as nobody logs in."""
    service = SERVICES[name]
    ports = [option(service["command"], "--port"), option(service["command"], "--http-port")]
    assert service["ports"] == [f"127.0.0.1:{port}:{port}" for port in ports]
    assert service["environment"]["HEALTH_URL"] == f"http://127.0.0.1:{ports[1]}/health/ready"
    assert service["hostname"] == name == option(service["command"], "--cluster")


def test_every_published_port_is_one_of_the_loopback() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published and all(port.startswith("127.0.0.1:") for port in published)
    assert len(published) == len(set(published))


PROBES = {"startupProbe": "/health/ready", "livenessProbe": "/health/live", "readinessProbe": "/health/ready"}


@pytest.mark.parametrize(("probe", "path"), PROBES.items())
def test_a_probe_asks_a_route(probe: str, path: str) -> None:
    routes = {route.path for route in ROUTES if route.method == "GET"}
    assert BROKER[probe]["httpGet"] == {"path": path, "port": "https", "scheme": "HTTPS"}
    assert path in routes


def test_addresses_inside_are_those_of_services() -> None:
    """The broker's own name, the one in its certificate, and the one that the pipelines connect to."""
    namespace = MANIFESTS["Namespace", "magnetar"]["metadata"]["name"]
    name = f"magnetar.{namespace}.svc.cluster.local"
    assert setting(BROKER["args"], "advertisedAddress") == name
    assert option(APPLICATION["arguments"], "--url") == f"https://{name}:8443"
    assert {part["host"] for part in map(_address, re.findall(r"\w+://[\w.-]+:\d+", COMPOSE.read_text()))} <= {
        *SERVICES,
        "localhost",
        "127.0.0.1",
    }
    for line in re.findall(r"\w+://(?:east|west):\d+", COMPOSE.read_text()):
        found = _address(line)
        words = SERVICES[found["host"]]["command"]
        assert found["port"] == option(words, "--port" if found["scheme"] == "pulsar" else "--http-port"), line


def _address(url: str) -> dict[str, str]:
    found = re.fullmatch(r"(?P<scheme>\w+)://(?P<host>[\w.-]+):(?P<port>\d+)", url)
    assert found is not None
    return found.groupdict()


# -- rights, and stops


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_has_no_rights(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"] and "no-new-privileges:true" in service["security_opt"]
    assert service["read_only"] and service["init"] and "privileged" not in service and "user" not in service
    assert int(service["stop_grace_period"].removesuffix("s")) > STOP_WAIT.limit
    assert set(service.get("depends_on", {})) <= set(SERVICES)


def test_a_pod_has_no_rights() -> None:
    for pod in (POD["securityContext"], APPLICATION["driver"]["podSecurityContext"]):
        assert pod["runAsNonRoot"] and f"{pod['runAsUser']}:{pod['runAsGroup']}" == last(STAGES[""], "USER")
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (BROKER, APPLICATION["driver"], APPLICATION["executor"]):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert BROKER["securityContext"]["readOnlyRootFilesystem"] is True
    assert POD["automountServiceAccountToken"] is False and POD["enableServiceLinks"] is False


def test_a_pod_has_time_to_stop() -> None:
    (_, before) = BROKER["lifecycle"]["preStop"]["exec"]["command"]
    assert POD["terminationGracePeriodSeconds"] > STOP_WAIT.limit + int(before)


def test_data_of_a_pod_outlives_it() -> None:
    claims = MANIFESTS["StatefulSet", "magnetar"]["spec"]["volumeClaimTemplates"]
    volumes = {claim["metadata"]["name"] for claim in claims} | {volume["name"] for volume in POD["volumes"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in BROKER["volumeMounts"]}
    assert set(mounts.values()) == volumes
    assert mounts["/var/lib/magnetar"] in {claim["metadata"]["name"] for claim in claims}
    assert MANIFESTS["StatefulSet", "magnetar"]["spec"]["replicas"] == 1
    assert set(BROKER["resources"]) == {"requests", "limits"}


def test_the_token_of_the_pipelines_is_in_a_secret() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    login = {one["name"]: one for one in APPLICATION["driver"]["env"]}
    reference = login["MAGNETAR_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert f"create secret generic {reference['name']} " in page and f"--from-file={reference['key']}=" in page
    (volume,) = APPLICATION["volumes"]
    assert volume["secret"]["secretName"] == reference["name"]
    (mount,) = APPLICATION["driver"]["volumeMounts"]
    assert login["MAGNETAR_TRUST_CERTS"]["value"] == f"{mount['mountPath']}/{volume['secret']['items'][0]['path']}"
    assert f"--subject {setting(BROKER['args'], 'superUserRoles')} " in page
    assert (
        APPLICATION["driver"]["serviceAccount"] == PIPELINES["ServiceAccount", "magnetar-pipelines"]["metadata"]["name"]
    )


def test_a_driver_runs_our_program() -> None:
    path = APPLICATION["mainApplicationFile"].removeprefix("local://")
    (copied,) = [rest for word, rest in STAGES["spark"] if word == "COPY" and "deploy/docker/pipelines.py" in rest]
    assert path == f"{copied.split()[-1]}pipelines.py"


def test_the_unit_waits_and_protects() -> None:
    found = unit()
    assert found["Type"] == ["notify"] and int(found["WatchdogSec"][0]) > 60
    assert int(found["TimeoutStopSec"][0]) > STOP_WAIT.limit and found["KillSignal"] == ["SIGTERM"]
    assert found["User"] == ["magnetar"] and found["ProtectSystem"] == ["strict"]
    assert found["NoNewPrivileges"] == ["yes"] and found["CapabilityBoundingSet"] == [""]
    assert int(found["LimitNOFILE"][0]) == SERVICES["east"]["ulimits"]["nofile"]["hard"]
    assert option(shlex.split(found["ExecStart"][0]), "--data") == f"/var/lib/{found['StateDirectory'][0]}/data"
    (name, *_) = (DEPLOY / "systemd/magnetar.sysusers").read_text(encoding="utf-8").splitlines()[-1].split()[1:]
    assert [name] == found["User"]


# -- with the tools that a machine has


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """The program has to exist, so that of this environment takes its place."""
    program = Path(sys.executable).parent / "magnetar"
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/magnetar/bin/magnetar", str(program)))
    found = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=60)
    assert (found.returncode, [line for line in found.stderr.splitlines() if UNIT.name in line]) == (0, [])


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="this machine has no kubectl")
@pytest.mark.parametrize("folder", ["kubernetes", "kubernetes/pipelines"])
def test_kustomize_accepts_the_manifests(folder: str) -> None:
    found = subprocess.run(["kubectl", "kustomize", DEPLOY / folder], capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr
    objects = list(yaml.safe_load_all(found.stdout))
    assert {one["metadata"].get("namespace", "magnetar") for one in objects} == {"magnetar"}
    named = MANIFESTS if folder == "kubernetes" else PIPELINES
    assert {(one["kind"], one["metadata"]["name"]) for one in objects} == set(named)
