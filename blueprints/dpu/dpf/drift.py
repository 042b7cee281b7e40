"""Fields of our objects that somebody else has changed: found by the health check, reported, and restored if wanted.

A DPUSet that has lost its selector selects every card, so a change must not go unseen.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from blueprints.answers import Json
from blueprints.dpf import Site, manifests
from blueprints.dpu.dpf import actions, deploying
from blueprints.dpu.dpf.config import Config
from blueprints.kube import MANAGER, KubeError, Object, labelled, other_managers
from blueprints.kube.comparison import dropped
from blueprints.specs import Spec
from drydock.core import clock

FACT, RESTORED = "drift", "drift_restored"
"""Facts of a DPU: the fields that others have changed, as sentences, and when they were written again."""
MOST, WINDOW = 3, 3600.0
"""How often fields are written again within these seconds. Somebody who changes them more often is only reported."""
_MOST_FIELDS = 10
_SELECTING = {"DPUSet": "spec", "DPUDeployment": "spec.dpus"}
"""Kinds that select a card, with the path below which nothing may be missing."""
_FROM_CONFIG = "nodeLabels"
"""A field that a newer config may have more of than the object. So may a DPUFlavor."""


@dataclass(frozen=True)
class Drift:
    """The result of a health check about fields that others have changed."""

    sentences: tuple[str, ...]
    facts: Json
    log: str = ""


def read(site: Site, spec: Spec) -> Drift:
    """Compare our objects with what Drydock writes, and write them again if the config says so. Raises KubeError."""
    config: Config = spec.config
    image = spec.resource.facts.get(actions.IMAGE_NEED) or actions.IMAGE
    if any(name not in spec.parents for name in (actions.CARD, image)):
        return Drift((), {})
    before = tuple(spec.resource.facts.get(FACT) or ())
    sentences, log, facts = list[str](), list[str](), Json()
    for kind, wanted in _written(site, spec):
        found = site.find(kind, wanted["metadata"]["name"])
        if found is None or found.deleting:
            continue
        said = differences(wanted, found)
        if said and kind == "DPUSet" and config.drift == "restore":
            done = _restored(site, spec, kind, wanted, found)
            log.append(f"{' '.join(said)} {done}")
            facts[RESTORED] = [*_lately(spec), clock.now().isoformat()][-MOST:]
            said = [] if done == _AGAIN else [*said, done]
        sentences += said
    new = [one for one in sentences if one not in before]
    if before and not sentences:
        log.append("Nothing that Drydock has written is changed any more.")
    return Drift(tuple(sentences), {**facts, FACT: sentences}, " ".join((*log, *new))[:2000])


_AGAIN = "Drydock has written them again."


def _restored(site: Site, spec: Spec, kind: str, wanted: Json, found: Object) -> str:
    if len(_lately(spec)) >= MOST:
        return f"They were written again {MOST} times within an hour, and are left now."
    try:
        site.cluster.restore(site.dialect.type(kind), wanted, current=found)
    except KubeError as error:
        return f"They could not be written again: {error}"
    return _AGAIN


def _lately(spec: Spec) -> list[str]:
    times = spec.resource.facts.get(RESTORED) or []
    since = clock.now() - dt.timedelta(seconds=WINDOW)
    return [one for one in times if dt.datetime.fromisoformat(one) > since]


def _written(site: Site, spec: Spec) -> Iterator[tuple[str, Json]]:
    """Yield our objects as Drydock writes them."""
    if deploying.deploys(spec.config) and spec.resource.facts.get(deploying.FACT):
        yield from ((one["kind"], one) for one in deploying.written(site, spec))
    else:
        name, image = site.name("DPUSet", spec.resource.key), actions.object_of(actions.image_of(spec))
        yield "DPUSet", labelled(actions.manifest_of_set(site, spec, name, image), site.proof)
    flavor = spec.config.flavor
    if not isinstance(flavor, str):
        name = spec.resource.facts.get("flavor_object") or site.name("DPUFlavor", spec.resource.key)
        yield "DPUFlavor", labelled(manifests.flavor(site.dialect, name, site.namespace, flavor), site.proof)


def differences(wanted: Mapping[str, object], found: Object) -> list[str]:
    """Return a sentence for each field manager that has changed fields which Drydock writes.

    A field that only differs from the config was changed by nobody: the config is newer than the object.
    """
    what = f"{wanted['kind']} {found.name}"
    lost = [path for path in dropped(dict(wanted), found.body) if path.startswith("spec")]
    owners = other_managers(found, MANAGER)
    said, named = list[str](), set[str]()
    for manager, paths in sorted(owners.items()):
        if changed := [path for path in lost if any(_overlap(path, one) for one in paths)]:
            named.update(changed)
            said.append(f"{manager} has changed {_listed(changed)} of {what}.")
    selects = _SELECTING.get(str(wanted["kind"]))
    kept = [path for path in lost if selects is not None and path.startswith(selects) and _FROM_CONFIG not in path]
    if gone := [path for path in kept if path not in named and not _is_ours(path, found)]:
        said.append(f"Somebody has removed {_listed(gone)} of {what}.")
    return said


def _listed(paths: list[str]) -> str:
    more = f" and {len(paths) - _MOST_FIELDS} more" if len(paths) > _MOST_FIELDS else ""
    return ", ".join(paths[:_MOST_FIELDS]) + more


def _is_ours(path: str, found: Object) -> bool:
    owned = other_managers(found, "")
    return any(_overlap(path, one) for one in owned.get(MANAGER, ()))


def _overlap(left: str, right: str) -> bool:
    """Return whether one path is the other, or below it. Keys with dots are written in two ways."""
    left, right = (one.replace("[", ".").replace("]", "") for one in (left, right))
    return left == right or left.startswith(f"{right}.") or right.startswith(f"{left}.")
