"""Objects that are ours: a name that follows from a key, and labels that prove who created them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping

from blueprints.kube.cluster import Cluster
from blueprints.kube.errors import ObjectChanged, ObjectExists, ObjectForeign
from blueprints.kube.objects import Json, Object, ObjectType

LABEL = 63
"""Characters of a label's value at most
(https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set)."""
_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?\Z")
_HASH = 10

Proves = Callable[[Mapping[str, str]], bool]
"""Returns whether the labels of an object prove that it is ours."""


def object_name(key: str, limit: int = 63) -> str:
    """Return the name of the object under a key, always the same one, with at most `limit` characters.

    It is the key itself if that is a DNS label (RFC 1035) that is short enough, and otherwise its beginning with a
    hash, so that different keys have different names. Limits of DPF are 20, 28, 48 and 63 (`Dialect.name_limit`).
    """
    if limit < _HASH + 2:
        raise ValueError("a name needs 12 characters or more")
    plain = re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-")
    if not plain[:1].isalpha():
        plain = f"d-{plain}".rstrip("-")
    if plain == key and len(plain) <= limit:
        return plain
    digest = hashlib.sha256(key.encode()).hexdigest()[:_HASH]
    return f"{plain[: limit - _HASH - 1].rstrip('-')}-{digest}"


def label_value(text: str) -> str:
    """Return a text as the value of a label: itself if it is valid, and otherwise its beginning with a hash."""
    if len(text) <= LABEL and _VALUE.match(text):
        return text
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[: LABEL - _HASH - 1].strip("-_.")
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH]
    return f"{plain}-{digest}" if plain else digest


def proof_labels(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags of a resource (`spec.tags`), which prove that it is ours, as labels."""
    return {key: label_value(value) for key, value in tags.items()}


def has_labels(wanted: Mapping[str, str]) -> Proves:
    """Return a test for the same proof as in `wanted`, for a step that creates an object of its own resource."""
    return lambda labels: all(labels.get(key) == value for key, value in wanted.items())


def selector(labels: Mapping[str, str]) -> str:
    """Return a label selector that finds the objects with all of these labels."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def labelled(manifest: Json, labels: Mapping[str, str]) -> Json:
    """Return a manifest with more labels in its metadata."""
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), **labels}}}


def ensure(cluster: Cluster, type_: ObjectType, manifest: Json, *, proves: Proves) -> Object:
    """Create an object; if its name is taken by one that is provably ours, adopt that one.

    This is how a create is repeated after a lost answer. Raises ObjectForeign if the object of this name is not ours,
    which an operator must resolve, and ObjectChanged while one of ours is still being deleted.
    """
    try:
        return cluster.create(type_, manifest)
    except ObjectExists:
        found = cluster.find(type_, manifest["metadata"]["name"], manifest["metadata"].get("namespace", ""))
    if found is None:
        raise ObjectChanged(f"{type_.kind} {manifest['metadata']['name']} was deleted while it was created.")
    where = f"{type_.kind} {found.name}" + (f" in namespace {found.namespace}" if found.namespace else "")
    if not proves(found.labels):
        raise ObjectForeign(
            f"{where} at {cluster.where} exists, and its labels do not prove that Drydock created it.",
            hint="Nothing was changed. If nobody needs it, delete it; then repeat the build.",
        )
    if found.deleting:
        raise ObjectChanged(
            f"{where} from before is still being deleted; it has finalizers {', '.join(found.finalizers)}."
        )
    return found
