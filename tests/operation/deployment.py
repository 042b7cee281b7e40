"""What the deployment files say: the commands they run and the settings they give."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
PROGRAMS = "/opt/drydock/.venv/bin/"


def unit(name: str) -> dict[str, list[str]]:
    """Key -> values of a systemd unit, sections flattened."""
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "systemd" / f"drydock-{name}.service").read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            key, value = line.split("=", 1)
            found.setdefault(key, []).append(value)
    return found


def systemd() -> dict[str, list[str]]:
    """Name -> command of each unit."""
    return {name: shlex.split(unit(name)["ExecStart"][0]) for name in ("web", "worker", "beat", "migrate")}


def compose() -> dict[str, Any]:
    """The compose file."""
    return dict(yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text()))


def dockerfile(folder: str = "compose") -> list[tuple[str, str]]:
    """Instruction and the rest of each line of a Dockerfile."""
    text = (DEPLOY / folder / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]


def image_command() -> list[str]:
    """What the image runs when nothing else is said."""
    return list(json.loads(next(rest for word, rest in dockerfile() if word == "CMD")))


def composed() -> dict[str, list[str]]:
    """Name -> command of each of our services."""
    services = {name: one for name, one in compose()["services"].items() if one.get("image") == "drydock"}
    return {name: one.get("command") or image_command() for name, one in services.items()}


def manifests() -> list[dict[str, Any]]:
    """Every Kubernetes object."""
    files = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    return [one for file in files for one in yaml.safe_load_all(file.read_text()) if one]


def pods() -> dict[str, dict[str, Any]]:
    """Name -> pod spec of each workload."""
    return {
        one["metadata"]["name"].removeprefix("drydock-"): one["spec"]["template"]["spec"]
        for one in manifests()
        if one["kind"] in ("Deployment", "Job")
    }


def in_pods() -> dict[str, list[str]]:
    """Name -> command of each workload."""
    return {name: pod["containers"][0]["command"] for name, pod in pods().items()}


def given() -> set[str]:
    """Every environment variable that a deployment file gives to our programs."""
    lines = (DEPLOY / "systemd" / "drydock.env").read_text() + (DEPLOY / "compose" / "env.example").read_text()
    names = set(re.findall(r"^([A-Z_]+)=", lines, re.MULTILINE))
    for name in ("web", "worker", "beat", "migrate"):
        names |= {word.split("=")[0] for word in " ".join(unit(name)["Environment"]).split()}
    names |= set(compose()["x-drydock"]["environment"])
    for one in manifests():
        names |= set(one.get("data", {})) | set(one.get("stringData", {}))
    return names | {word.split("=")[0] for step, rest in dockerfile() if step == "ENV" for word in rest.split()}
