"""Checking manifests against CRD files, without a server: unknown, missing and invalid fields, and the rules in CEL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from blueprints.kube import schemas
from blueprints.kube.dialect import Dialect, bundled, dialect_of_crds
from blueprints.kube.errors import AnswerInvalid, KindUnknown, LibraryMissing
from blueprints.kube.objects import Json
from blueprints.kube.schemas import Findings
from blueprints.kube.yamltext import MOST_BYTES, YamlRefused, documents
from drydock.core.errors import InvalidRequest, Problem

_MOST_FILES = 500
_CRD = "CustomResourceDefinition"

__all__ = ["Verdict", "accepted", "bundled", "check", "check_file", "read_crds"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result of checking one manifest against a set of CRDs."""

    file: str
    number: int
    """Which manifest of the file it is."""
    kind: str
    name: str
    crds: str
    """The folder of the CRDs, or their version."""
    findings: Findings
    problem: str = ""
    """Why it could not be compared, such as a kind that no CRD defines."""

    @property
    def ok(self) -> bool:
        """Whether a server with these CRDs would store the manifest as it is."""
        return not self.findings and not self.problem

    def to_json(self) -> Json:
        """Return the verdict for programs."""
        found = self.findings
        return {
            "file": self.file, "number": self.number, "kind": self.kind, "name": self.name, "crds": self.crds,
            "ok": self.ok, "unknown": list(found.unknown), "missing": list(found.missing),
            "invalid": [{"field": one.field, "message": one.message} for one in found.invalid],
            "unchecked": [{"field": one.field, "message": one.message} for one in found.unchecked],
            "problem": self.problem,
        }  # fmt: skip


def check(manifest: Json, dialect: Dialect) -> Findings:
    """Return what a server with this dialect would find wrong with a manifest, rules in CEL included.

    As on a server, rules are evaluated only if no field is missing and every field has the right type. Raises
    KindUnknown, LibraryMissing.
    """
    known = dialect.known(manifest)
    if known.schema is None:
        return Findings()
    found, stored, evaluable = schemas.check(manifest, known.schema, namespaced=known.type.namespaced)
    if not evaluable:
        return found
    results = list(_cel().violated(stored, known.schema))
    broken = [problem for failed, problem in results if failed]
    return Findings(
        unknown=found.unknown, missing=found.missing, invalid=(*found.invalid, *broken),
        unchecked=tuple(problem for failed, problem in results if not failed),
    )  # fmt: skip


def check_file(path: Path, sets: Mapping[str, Dialect], words: Mapping[str, str] | None = None) -> list[Verdict]:
    """Check every manifest of a file against each set of CRDs. `words` replaces placeholders, such as `$TAG`.

    Raises InvalidRequest if the file cannot be read.
    """
    text = read_text(path)
    for placeholder in sorted(words or {}, key=len, reverse=True):
        text = text.replace(placeholder, (words or {})[placeholder])
    manifests = _manifests(path, text)
    return [
        _verdict(path, number, manifest, name, dialect)
        for number, manifest in enumerate(manifests, 1)
        for name, dialect in sets.items()
    ]


def read_crds(folder: Path) -> Dialect:
    """Return the dialect of the CRD files in a folder; other YAML files in it are ignored. Raises InvalidRequest."""
    files = sorted(path for path in folder.glob("*") if path.suffix in (".yaml", ".yml", ".json"))
    if not folder.is_dir() or not files or len(files) > _MOST_FILES:
        said = (
            "is not a folder" if not folder.is_dir() else f"has {len(files)} YAML files, and needs 1 to {_MOST_FILES}"
        )
        raise InvalidRequest(f"{folder} {said}.", field="crds")
    crds = [one for path in files for one in _manifests(path, read_text(path)) if one.get("kind") == _CRD]
    if not crds:
        raise InvalidRequest(f"{folder} has no file with a {_CRD}.", field="crds")
    try:
        return dialect_of_crds(crds)
    except AnswerInvalid as error:
        raise InvalidRequest(f"{folder}: {error.message}", field="crds") from None


def read_text(path: Path) -> str:
    """Return the text of a file of at most 4 MiB. Raises InvalidRequest."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        return content.decode()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.", field="file") from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"{path} is not text in UTF-8.", field="file") from None


def _manifests(path: Path, text: str) -> list[Json]:
    try:
        found = documents(text)
    except YamlRefused as error:
        raise InvalidRequest(f"{path}: {error}", field="file") from None
    flat: list[Any] = []
    for one in found:
        items = one.get("items") if isinstance(one, dict) and one.get("kind") == "List" else None
        flat += items if isinstance(items, list) else [one]
    if not all(isinstance(one, dict) for one in flat):
        raise InvalidRequest(f"{path}: every document must be a mapping, as manifests are.", field="file")
    return flat


def _verdict(path: Path, number: int, manifest: Json, crds: str, dialect: Dialect) -> Verdict:
    metadata = manifest.get("metadata")
    name = str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
    findings, problem = Findings(), ""
    try:
        findings = check(manifest, dialect)
    except KindUnknown:
        problem = f"No CRD defines {manifest.get('kind')} of {manifest.get('apiVersion')}."
        findings = Findings(invalid=(Problem(field="kind", message=problem),))
    return Verdict(
        file=str(path),
        number=number,
        kind=str(manifest.get("kind", "")),
        name=name,
        crds=crds,
        findings=findings,
        problem=problem,
    )


def accepted(verdicts: Sequence[Verdict]) -> bool:
    """Return whether every manifest is accepted by at least one set of CRDs."""
    found: dict[tuple[str, int], bool] = {}
    for one in verdicts:
        key = (one.file, one.number)
        found[key] = found.get(key, False) or one.ok
    return all(found.values())


def _cel() -> Any:
    try:
        # By name, so that only those who check load cel-python, which takes half a second.
        return import_module("blueprints.kube.cel")
    except ImportError as error:
        raise LibraryMissing("Checking the rules of CRDs", "cel-python>=0.5") from error
