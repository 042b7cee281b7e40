"""`python -m tests.kube.bundle` makes the files in blueprints/kube/crds from the CRDs beside the repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from blueprints.kube import check
from tests.agent.captured import CAPTURES

FOLDER = Path(check.__file__).parent / "crds"
SETS = {"dpf-24.10": "dpf-crds", "dpf-26.4": "dpf-crds-new"}
SOURCES = {
    "dpf-24.10": "github.com/NVIDIA/doca-platform at 1f6a80c0b087 (v24.10.0-rc.6), Apache-2.0; descriptions left out",
    "dpf-26.4": "github.com/NVIDIA/infra-controller at a02fa34b71dc (a copy of the CRDs of DPF v26.4.0-rc.3), and "
    "dpuflavortemplates from github.com/NVIDIA/doca-platform at 03c4432dd6a0, Apache-2.0; descriptions left out",
}


def made(name: str) -> dict[str, Any]:
    return {"source": SOURCES[name]} | check.read_crds(CAPTURES / SETS[name]).to_json()


def text(content: dict[str, Any]) -> str:
    """Return the content as JSON with a line for each type, so that changes can be read."""
    types = ",\n".join(json.dumps(one, sort_keys=True, separators=(",", ":")) for one in content["types"])
    return f'{{"source":{json.dumps(content["source"])},"types":[\n{types}\n]}}\n'


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in SETS:
        (FOLDER / f"{name}.json").write_text(text(made(name)))
