"""The least role that each kind needs on the API server of DPF.

The lives of DPUs in the tests use an account with exactly these roles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blueprints.dpf import images
from blueprints.dpf.cards import uses_devices
from blueprints.kube import NODE, SECRET, Dialect, Json, Rule, role

_LIST = ("list",)
_CREATED = ("get", "list", "create", "delete")
"""The verbs for objects that Drydock creates. It reads them by name, and lists them by label to find orphans."""
_OURS = (*_CREATED, "watch")
"""The verbs for objects that it creates and watches."""
_VERBS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "dpf": {
        "DPUSet": (*_OURS, "patch"), "DPUFlavor": _OURS, "DPUCluster": ("get",),
        "BFB": ("get",), "BlueFieldSoftware": ("get",),
        "DPU": ("get", "list", "watch", "patch", "delete"),
        "DPUDevice": _LIST, "DPUNode": ("get", "list", "watch", "patch"),
        "DPUNodeMaintenance": ("get", "list", "watch", "patch"),
        "DPUService": (*_OURS, "patch"),
        "DPUServiceCredentialRequest": (*_OURS, "patch"),
        "DPUDeployment": (*_OURS, "patch"),
        "DPUServiceTemplate": (*_OURS, "patch"), "DPUServiceConfiguration": (*_OURS, "patch"),
        "DPUServiceChain": _OURS, "DPUServiceInterface": _OURS, "DPUServiceIPAM": _OURS, "DPUServiceNAD": _OURS,
        "DPUVolume": _OURS, "DPUVolumeAttachment": _OURS, "DPUVPC": _OURS, "DPUVirtualNetwork": _OURS,
    },
    "dpf_card": {"DPU": _LIST, "DPUDevice": (*_CREATED, "patch"), "DPUNode": (*_CREATED, "patch")},
    "dpf_cluster": {"DPUCluster": (*_OURS, "patch")},
    "dpf_image": {"BFB": _OURS, "BlueFieldSoftware": _OURS},
}  # fmt: skip
"""Kind -> type of object -> verbs. Types that a server does not have are left out."""
_ALLOWED_BY: Mapping[str, tuple[str, ...]] = {
    "DPUDeployment": ("deployment",), "DPUServiceTemplate": ("deployment",), "DPUServiceConfiguration": ("deployment",),
    "DPUService": ("charts", "deployment"), "DPUServiceCredentialRequest": ("credentials",),
    "DPUServiceChain": ("chains", "deployment"), "DPUServiceInterface": ("chains", "vpcs", "deployment"),
    "DPUServiceIPAM": ("networks",), "DPUServiceNAD": ("networks",),
    "DPUVolume": ("volumes",), "DPUVolumeAttachment": ("volumes",), "DPUVPC": ("vpcs",), "DPUVirtualNetwork": ("vpcs",),
}  # fmt: skip
"""Type of object -> the fields of the config any of which needs it, or lets owners have it."""
_READ_CARDS = ("dpf", "dpf_card")
_READ_KUBECONFIGS = ("dpf", "dpf_cluster")
_SHOW_CREDENTIALS = ("dpf",)


@dataclass(frozen=True)
class Permissions:
    """The rules of a role in the namespace of DPF, and those of a cluster role for types without a namespace."""

    namespaced: tuple[Rule, ...]
    cluster: tuple[Rule, ...] = ()
    secrets: tuple[Rule, ...] = ()
    """Rules in the namespace that is set aside for secrets."""


def kinds() -> tuple[str, ...]:
    """Return the names of the kinds that use DPF."""
    return tuple(_VERBS)


def allows(config: Mapping[str, Any], type_: str) -> bool:
    """Return whether a config needs objects of a type or lets owners have them; True if that depends on no field."""
    if type_ in images.KINDS:
        return type_ in images.used_by(config)
    given = [config.get(field) for field in _ALLOWED_BY.get(type_, ())]
    return not given or any(one is not None and (isinstance(one, Mapping) or bool(one)) for one in given)


def permissions(
    kind: str, dialect: Dialect, secrets: Sequence[str] = (), config: Mapping[str, Any] | None = None
) -> Permissions:
    """Return what a kind needs on servers of a dialect: what a config needs, or by default whatever it may allow.

    `secrets` names the secrets with the kubeconfigs of the DPU clusters; without them, the role may read all secrets of
    the namespace. Raises KeyError for a kind that does not use DPF, and ValueError for a bad name of a secret.
    """
    found = [
        Rule(type=dialect.type(one), verbs=verbs)
        for one, verbs in _VERBS[kind].items()
        if dialect.has(one) and (config is None or allows(config, one))
    ]
    if kind in _READ_KUBECONFIGS:
        found.append(Rule(type=SECRET, verbs=("get",), names=tuple(secrets)))
    of_nodes = kind in _READ_CARDS and not uses_devices(dialect)
    nodes = (Rule(type=NODE, verbs=_LIST),) if of_nodes else ()
    shown = (Rule(type=SECRET, verbs=("get", "delete")),) if kind in _SHOW_CREDENTIALS else ()
    return Permissions(tuple(found), nodes, shown)


def manifests(
    needed: Permissions, namespace: str, *, name: str, account: str, account_namespace: str = "",
    secrets: str = "",
) -> list[Json]:  # fmt: skip
    """Return the roles for permissions, and their bindings to a service account, by default in the same namespace.

    `secrets` is the namespace that is set aside for secrets; without it, there is no role for it.

    Raises ValueError for a bad name.
    """
    given = {"name": name, "account": account, "account_namespace": account_namespace or namespace}
    found = role(needed.namespaced, namespace, **given)
    found += role(needed.secrets, secrets, **given) if needed.secrets and secrets else []
    return found + (role(needed.cluster, "", **given) if needed.cluster else [])
