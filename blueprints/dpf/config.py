"""Config fields that all kinds of DPF have: the API server, and how long it may be unreachable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pydantic import Field

from blueprints.contract import Fields
from blueprints.dpf.access import dialect_of
from blueprints.kube import Dialect, KubeError, connect
from blueprints.specs import BlueprintView, Problem

NAMESPACE = "dpf-operator-system"
"""The namespace in which DPF's documents install it."""


class Server(Fields):
    """The API server on which DPF runs."""

    credential: str = Field(
        min_length=1,
        description="Name of the credential for the API server: a kubeconfig, or server, token and authority.",
    )
    namespace: str = Field(
        default=NAMESPACE, pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", description="Namespace of the DPF objects."
    )
    outage: float = Field(
        default=3600.0,
        gt=0,
        le=86_400,
        description="Seconds for which a build waits while the API server cannot be reached.",
    )


def problems(blueprint: BlueprintView, kinds: Sequence[str], newer: Mapping[str, str] | None = None) -> list[Problem]:
    """Return what is wrong with the credential, or the reason why the server cannot be used. Writes nothing.

    `newer` has kinds that DPF 24.10 does not have, each with the field of the config that needs it.
    """
    name = blueprint.config.credential
    if name not in blueprint.credentials:
        return [Problem(message=f"Credential {name!r} does not exist.", field="credential")]
    try:
        with connect(blueprint.credentials[name]) as cluster:
            dialect = dialect_of(cluster, fresh=True)
    except KubeError as error:
        return [Problem(message=str(error), field="credential")]
    absent = [
        Problem(message=f"The API server at {cluster.where} has no kind {kind}. Is DPF installed there?", field="kind")
        for kind in kinds
        if not dialect.has(kind)
    ]
    older = "DPF 26.4 has it, and DPF 24.10 does not."
    return absent + [
        Problem(message=f"The API server at {cluster.where} has no kind {kind}. {older}", field=field)
        for kind, field in (newer or {}).items()
        if not dialect.has(kind)
    ]


def in_dialect(blueprint: BlueprintView, find: Callable[[Dialect, str], list[Problem]]) -> list[Problem]:
    """Return what a function finds that the server cannot express. It is called with the dialect, and the address."""
    try:
        with connect(blueprint.credentials[blueprint.config.credential]) as cluster:
            return find(dialect_of(cluster), cluster.where)
    except KubeError as error:
        return [Problem(message=str(error), field="credential")]
