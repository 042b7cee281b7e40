"""Shared code of the kinds that use the DOCA Platform Framework (DPF).

DPF manages BlueField DPUs through objects on a Kubernetes API server
(https://github.com/NVIDIA/doca-platform). This package has the config of a connection (`Server`), the connection of a
step (`opened`), the manifests of our objects in the dialect of the server (`manifests`), cards as values (`cards`), the
meaning of the phases of a DPU (`phases`), services, chains, networks and credentials of a lease, and `watches`.
Everything but `access`, `bmc` and `watches` is pure.
"""

from blueprints.dpf.access import SELDOM, Site, delete_ours, dialect_of, kube_told, opened, owned, site_of
from blueprints.dpf.config import NAMESPACE, Server

__all__ = [
    "NAMESPACE",
    "SELDOM",
    "Server",
    "Site",
    "delete_ours",
    "dialect_of",
    "kube_told",
    "opened",
    "owned",
    "site_of",
]
