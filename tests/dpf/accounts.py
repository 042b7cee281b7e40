"""Accounts with the least role on an API server that plays DPF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from blueprints.dpf import permissions
from blueprints.kube import Dialect, connect, read_dialect
from blueprints.kube.dialect import bundled
from tests.dpus.api import NAMESPACE
from tests.dpus.user import User
from tests.kube.apiserver import SLOW, account


def least(dpf: User, without: Sequence[str] = (), config: Mapping[str, Any] | None = None) -> str:
    """Return the kubeconfig of an account with exactly the roles that `drydock kube role` prints for the four kinds.

    For DPUs, that is what a `config` needs; by default, whatever a config may allow. `without` are types of objects to
    which the account has no right.
    """
    double = dpf.double
    namespace, apart, found = double.state.api.namespace, double.state.apart, []
    double.state.admin.create(NAMESPACE, {"metadata": {"name": apart}})
    dialect = bundled().get(f"dpf-{double.generation.name}") or _read(dpf)
    for kind in permissions.kinds():
        needed = permissions.permissions(kind, dialect, config=config if kind == "dpf" else None)
        rules = tuple(one for one in needed.namespaced if one.type.kind not in without)
        needed = permissions.Permissions(rules, needed.cluster, needed.secrets)
        name = f"{namespace}-{kind}".replace("_", "-")
        found += permissions.manifests(
            needed, namespace, name=name, account="drydock", account_namespace=namespace, secrets=apart
        )
    return account(dpf.kubeconfig, namespace, found)


def _read(dpf: User) -> Dialect:
    with connect({"kubeconfig": dpf.kubeconfig}, deadline=SLOW) as admin:
        return read_dialect(admin)
