"""The check of a blueprint of kind dpf, which finds what the server cannot express of its config. Writes nothing."""

from __future__ import annotations

from blueprints.bluefield import usual_memory_gib
from blueprints.dpf import config as server
from blueprints.dpf import deployments, dialect_of, manifests
from blueprints.dpf.chains import CHAINS, INTERFACE
from blueprints.dpf.credentials import KIND as CREDENTIAL
from blueprints.dpf.images import Image, kind_of
from blueprints.dpf.networks import IPAM
from blueprints.dpf.services import KIND as SERVICE
from blueprints.dpf.volumes import VOLUMES
from blueprints.dpf.vpcs import VPCS
from blueprints.dpu.dpf import deploying, parking
from blueprints.dpu.dpf.config import Config, flavor_problem
from blueprints.kube import Dialect, KubeError, connect
from blueprints.specs import BlueprintView, Problem


def problems(blueprint: BlueprintView) -> list[Problem]:
    """Return what is wrong with a blueprint: the server, and what it cannot express of the config."""
    config: Config = blueprint.config
    kinds = (
        "DPUSet",
        "DPUFlavor",
        "DPU",
        *((SERVICE,) if config.charts else ()),
        *(CHAINS.kinds if config.chains is not None else ()),
        *((INTERFACE,) if config.vpcs is not None and config.chains is None else ()),
        *((IPAM,) if config.networks else ()),
        *((CREDENTIAL,) if config.credentials is not None else ()),
        *((*deployments.KINDS, SERVICE) if deploying.deploys(config) else ()),
    )
    newer = {kind: "volumes" for kind in VOLUMES.newer if config.volumes is not None}
    newer |= {kind: "vpcs" for kind in VPCS.newer if config.vpcs is not None}
    return server.problems(blueprint, kinds, newer) or [
        *image_problems(blueprint),
        *flavor_problems(blueprint),
        *deploying.problems(blueprint),
        *parking.problems(blueprint),
    ]


def image_problems(blueprint: BlueprintView) -> list[Problem]:
    """Return which fields a DPUSet would need that the server does not have, in order to install the images."""
    config: Config = blueprint.config
    given = {"image": config.image if config.deployment is None else "", "park_image": config.park_image}
    return server.in_dialect(
        blueprint, lambda dialect, where: uninstallable(dialect, {k: url for k, url in given.items() if url}, where)
    )


def uninstallable(dialect: Dialect, images: dict[str, str], where: str) -> list[Problem]:
    """Return what servers of a dialect lack for images, given as field of the config -> address."""
    card = {"card_labels": {"card": "x"}, "node_labels": {"node": "x"}}
    found = []
    for field, url in images.items():
        image = Image(kind_of(url), "image")
        made = manifests.dpu_set(dialect, "set", "default", card, image=image, flavor="flavor", labels={})
        findings = dialect.missing(made)
        found += [
            Problem(message=f"The API server at {where} does not accept the field {path} of a DPUSet.", field=field)
            for path in (*findings.unknown, *findings.invalid)
        ]
    return found


def flavor_problems(blueprint: BlueprintView) -> list[Problem]:
    """Return what the server cannot express of the flavor, by the path of the field. Writes nothing."""
    config: Config = blueprint.config
    where = "flavor" if config.deployment is None else "deployment.flavor"
    try:
        with connect(blueprint.credentials[config.credential]) as cluster:
            dialect = dialect_of(cluster)
            if config.flavor_name:
                known = cluster.find(dialect.type("DPUFlavor"), config.flavor_name, config.namespace)
                missing = f"DPUFlavor {config.flavor_name} does not exist in namespace {config.namespace}."
                problem = missing if known is None else flavor_problem(known.spec, _memory(config), config.mode)
                return [Problem(message=problem, field=where)] if problem else []
    except KubeError as error:
        return [Problem(message=str(error), field="credential")]
    assert not isinstance(config.flavor, str)
    if problem := flavor_problem(config.flavor, _memory(config), config.mode):
        return [Problem(message=problem, field=where)]
    findings = dialect.missing(manifests.flavor(dialect, "flavor", config.namespace, config.flavor))
    return [
        Problem(
            message=f"The API server at {cluster.where} does not accept the field {path} of a DPUFlavor.",
            field=where,
        )
        for path in (*findings.unknown, *findings.missing, *findings.invalid)
    ]


def _memory(config: Config) -> int | None:
    """Return the least memory of the cards that the config requires, in GiB; None if it says nothing about it."""
    given = config.card.get("memory_gib")
    return given if type(given) is int else usual_memory_gib(str(config.card.get("model") or ""))
