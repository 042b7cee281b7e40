"""The deployment files: in the form their programs read, with settings and commands that there are."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from drydock import environment
from leases.agents import hostscripts
from tests.operation import deployment
from tests.operation.deployment import DEPLOY, PROGRAMS
from tests.operation.proxy import adapt
from tests.peers import require

ROOT = DEPLOY.parent
NOT_OURS = {"DJANGO_SETTINGS_MODULE", "PATH", "POSTGRES_PASSWORD", "PYTHONUNBUFFERED"}
AGENT_PROGRAMS = "/opt/drydock-agent/bin/"
UNITS = ("web", "worker", "beat", "migrate")


@pytest.fixture(autouse=True)
def _database():
    """Files alone are looked at."""


def plain(command: list[str]) -> list[str]:
    """Without what differs from place to place: where programs are, and the address."""
    words = [word.removeprefix(PROGRAMS) for word in command]
    return ["" if before == "--bind" else word for before, word in zip(["", *words], words, strict=False)]


def test_every_setting_named_is_one_that_there_is():
    known = {environment.variable(name) for name in environment.Environment.model_fields}
    named = deployment.given()
    assert named - NOT_OURS - known == set()
    required = ("database_url", "broker_url", "secret_key", "encryption_keys", "ownership_key")
    assert {environment.variable(name) for name in required} <= named


def test_all_three_ways_run_the_same_commands():
    units = {name: plain(command) for name, command in deployment.systemd().items()}
    assert units == {name: plain(command) for name, command in deployment.composed().items()}
    assert units == {name: plain(command) for name, command in deployment.in_pods().items()}


def test_the_compose_file_is_one():
    file = DEPLOY / "compose" / "compose.yaml"
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*checker, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = deployment.compose()
    for one in told["services"].values():
        assert set(one.get("depends_on", ())) <= set(told["services"])
        assert {name.split(":")[0] for name in one["volumes"]} <= set(told["volumes"]) if "volumes" in one else True


def test_the_image_copies_all_that_the_package_is_made_of():
    copied = {
        word for step, rest in deployment.dockerfile() if step == "COPY" and "--from" not in rest
        for word in rest.split()[:-1]
    }  # fmt: skip
    assert [name for name in copied if not (ROOT / name).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    said = project["project"]
    wanted = {*wheel["packages"], *wheel["force-include"], *said["license-files"], said["readme"], "pyproject.toml"}
    assert wanted <= copied


def test_the_image_of_the_agent_has_what_its_wheel_needs_and_keeps_its_state_where_the_unit_does():
    steps = deployment.dockerfile("agent")
    copied = {
        word for step, rest in steps if step == "COPY" and "--from" not in rest for word in rest.split()[:-1]
    }  # fmt: skip
    assert [name for name in copied if not (ROOT / name).exists()] == []
    project = tomllib.loads((ROOT / "clients/agent/pyproject.toml").read_text())
    folders = {
        (ROOT / "clients/agent" / one).resolve().relative_to(ROOT).as_posix()
        for one in project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    }
    assert {*folders, "clients/agent"} <= copied
    assert {rest.split()[0] for step, rest in steps if step == "FROM"} == {
        rest.split()[0] for step, rest in deployment.dockerfile() if step == "FROM"
    }
    said = dict(steps)
    folder = f"/var/lib/{deployment.unit('agent')['StateDirectory'][0]}"
    assert (said["VOLUME"], said["WORKDIR"], f"DRYDOCK_AGENT_STATE={folder} " in said["ENV"]) == (folder, folder, True)
    assert said["USER"].isdecimal()
    program, *words = json.loads(said["CMD"])
    assert program in project["project"]["scripts"]
    assert [program, *words] == plain(
        [word.removeprefix(AGENT_PROGRAMS) for word in deployment.unit("agent")["ExecStart"][0].split()]
    )


def test_the_installed_unit_of_the_agent_is_the_one_of_the_repository():
    made = hostscripts.UNIT.format(python="/usr/bin/python3", folder="/var/lib/drydock-agent", account="drydock-agent")

    def lines(text):
        return [line for line in text.splitlines() if not line.startswith(("#", "ExecStart="))]

    assert lines(made) == lines((DEPLOY / "systemd" / "drydock-agent.service").read_text())


def test_the_manifests_are_what_kubernetes_takes():
    found = deployment.manifests()
    for version in ("1.28", kubernetes_validate.latest_version()):
        for one in found:
            kubernetes_validate.validate(one, version, strict=True)
    names = {(one["kind"], one["metadata"]["name"]) for one in found}
    for pod in deployment.pods().values():
        (container,) = pod["containers"]
        for source in container["envFrom"]:
            ((kind, reference),) = source.items()
            assert (kind[0].upper() + kind[1:-3], reference["name"]) in names
        assert {mount["name"] for mount in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}
    for one in found:
        wanted = one["spec"]["selector"] if one["kind"] in ("Service", "Deployment") else {}
        wanted = wanted.get("matchLabels", wanted)
        assert any(wanted.items() <= pod["metadata"]["labels"].items() for pod in templates(found)), one["metadata"]


def templates(found):
    return [one["spec"]["template"] for one in found if one["kind"] in ("Deployment", "Job")]


@pytest.fixture
def analyze():
    return require("systemd-analyze")


def test_systemd_takes_the_units_and_finds_them_closed(analyze, tmp_path):
    programs = f"{Path(sys.executable).parent}/"
    files = []
    for name in (*UNITS, "agent"):
        file = tmp_path / f"drydock-{name}.service"
        file.write_text(
            (DEPLOY / "systemd" / file.name).read_text().replace(PROGRAMS, programs).replace(AGENT_PROGRAMS, programs)
        )
        files.append(str(file))
    installed = tmp_path / "installed" / "drydock-agent.service"
    installed.parent.mkdir()
    installed.write_text(
        hostscripts.UNIT.format(python=sys.executable, folder="/var/lib/drydock-agent", account="root")
    )
    for file in (*files, str(installed)):
        command = [analyze, "security", "--offline=yes", "--threshold=25", "--no-pager", file]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-300:] + done.stderr
    more = tmp_path / "drydock-worker.service.d"
    more.mkdir()
    shutil.copy(DEPLOY / "systemd" / "worker-as-root.conf", more)
    done = subprocess.run(
        [analyze, "verify", "--man=no", "--recursive-errors=no", *files],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "drydock-" in done.stderr) == (0, False), done.stderr


def test_nginx_takes_the_proxy(peer, tmp_path):
    done = subprocess.run(
        [peer("nginx"), "-t", "-c", str(adapt(tmp_path, 8000, 8080, 8443))], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "[warn]" in done.stderr) == (0, False), done.stderr


def test_a_scrape_is_configured_as_the_probe_wants_it():
    (job,) = yaml.safe_load((DEPLOY / "prometheus" / "scrape.yaml").read_text())["scrape_configs"]
    assert (job["metrics_path"], job["authorization"]["type"]) == ("/metrics", "Bearer")


def test_no_file_has_a_password_of_its_own():
    for file in (path for path in DEPLOY.rglob("*") if path.is_file()):
        for line in file.read_text().splitlines():
            if line.startswith(("DRYDOCK_SECRET_KEY=", "DRYDOCK_ENCRYPTION_KEYS=", "POSTGRES_PASSWORD=")):
                assert line.endswith("="), f"{file.name}: {line}"
