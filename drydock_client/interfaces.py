"""The interfaces of leases: commands, files, the web server and the services on a DPU."""

from __future__ import annotations

import datetime as dt
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from drydock_client.operations import Operations, operation
from drydock_client.values import (
    AccessInfo,
    DpuChainInfo,
    DpuChart,
    DpuCredentialInfo,
    DpuNetworkInfo,
    DpuPort,
    DpuServiceInfo,
    DpuVirtualNetwork,
    DpuVolumeInfo,
    DpuVpcInfo,
    Ended,
    FileInfo,
    JobInfo,
    LogPart,
    ServerInfo,
)

Words = Sequence[str] | str
"""Exact arguments, or one line for a shell."""


class Interfaces(Operations):
    """Access, commands, files, the web server and the DPU services of leases."""

    @operation("GET", "leases/{id}/access", "Get the SSH access to a lease")
    def access(self, id: int) -> AccessInfo:
        """Return how to reach a lease by SSH now: host, port, user and host keys with fingerprints. No secrets."""

    @abstractmethod
    def run(
        self, id: int, words: Words, *, env: Mapping[str, str] | None = None, cwd: str = "", stdin: bytes = b"",
        timeout: float | None = None, on_output: Callable[[str, bytes], None] | None = None,
    ) -> Ended:  # fmt: skip
        """Run a command and wait until it ends. `on_output(stream, content)` receives the output as it arrives."""

    @abstractmethod
    def read_file(self, id: int, path: str) -> bytes:
        """Return the content of a file, up to 64 MiB."""

    @abstractmethod
    def write_file(self, id: int, path: str, content: bytes) -> None:
        """Write a file atomically."""

    @abstractmethod
    def upload(self, id: int, local: Path, path: str, on_file: Callable[[str], None] | None = None) -> tuple[int, int]:
        """Copy a local file or tree into the lease. Return the number of files and of bytes copied."""

    @abstractmethod
    def download(
        self, id: int, path: str, local: Path, on_file: Callable[[str], None] | None = None
    ) -> tuple[int, int]:
        """Copy a file or tree of the lease to this machine. Return the number of files and of bytes copied."""

    @operation("GET", "leases/{id}/files", "List a folder", query="Place", host="lease")
    def list_files(self, id: int, path: str = "") -> list[FileInfo]:
        """List the entries of a folder, sorted by name."""

    @abstractmethod
    def remove_path(
        self, id: int, path: str, *, recursive: bool = False, on_job: Callable[[JobInfo], None] | None = None
    ) -> None:
        """Remove a file or a folder, and wait until it is gone. A missing path is not an error.

        If removing a large folder takes long, a job on the host continues, and `on_job` is called repeatedly with that
        job.
        """

    # The web server, on which a lease has the interface `httpd`

    @abstractmethod
    def publish(self, id: int, path: str, content: bytes) -> str:
        """Publish a page atomically and return its address."""

    @abstractmethod
    def publish_tree(self, id: int, local: Path, path: str = "") -> tuple[int, int]:
        """Publish a local folder. Return the number of files and of bytes copied."""

    @operation("DELETE", "leases/{id}/page", "Unpublish a page or folder", scope="lease", query="File", host="lease")
    def unpublish(self, id: int, path: str) -> None:
        """Remove a page or folder. A missing page is not an error."""

    @operation(
        "GET", "leases/{id}/page", "Get the address of a page", query="Place", inside="Address.uri", host="lease"
    )
    def uri(self, id: int, path: str = "") -> str:
        """Return the address of a page."""

    @operation("GET", "leases/{id}/server", "Get the status of the web server", host="lease")
    def server_status(self, id: int) -> ServerInfo:
        """Return whether the web server is stopped, running or failed, and its last error."""

    @operation(
        "POST",
        "leases/{id}/server",
        "Start, stop, restart, reload or test the web server",
        scope="lease",
        body="ServerAct",
        host="lease",
    )
    def change_server(self, id: int, act: str) -> ServerInfo:
        """Start, stop, restart, reload or test the web server, and return its status."""

    def server(self, id: int, act: str = "status") -> ServerInfo:
        """Start, stop, restart, reload or test the web server, and return its status. `status` changes nothing."""
        return self.server_status(id) if act == "status" else self.change_server(id, act)

    @operation("GET", "leases/{id}/server/log", "Read a log of the web server", query="Log", host="lease")
    def server_log(self, id: int, kind: str = "access", *, offset: int = 0, limit: int = 1 << 20) -> LogPart:
        """Return a part of the web server's `access` or `error` log: at most `limit` bytes, starting at `offset`."""

    # The services on a DPU, on which a lease has the interface `dpu_services`

    @operation("GET", "leases/{id}/dpu-services", "List the services on a DPU", host="lease")
    def dpu_services(self, id: int) -> list[DpuServiceInfo]:
        """List the services of a lease, sorted by name, without their Helm values."""

    @operation("GET", "leases/{id}/dpu-services/{name}", "Get a service on a DPU", host="lease")
    def dpu_service(self, id: int, name: str) -> DpuServiceInfo:
        """Return a service with its state and its Helm values."""

    @operation(
        "PUT",
        "leases/{id}/dpu-services/{name}",
        "Create or change a service on a DPU",
        scope="lease",
        body="DpuService",
        host="lease",
    )
    def apply_dpu_service(
        self, id: int, name: str, *, chart: DpuChart, values: Mapping[str, Any] | None = None,
        ports: Sequence[DpuPort] = (), labels: Mapping[str, str] | None = None, interfaces: Sequence[str] = (),
    ) -> DpuServiceInfo:  # fmt: skip
        """Create a service, or change the one of this name. The same service again changes nothing.

        The chart must be one that the config of the blueprint allows. `labels` are those of the pods, and `interfaces`
        names of their network interfaces, which must be connected by chains before the pods start; namespace, cluster
        and node are set by Drydock. Returns before the pods run: get the service for its state.
        """

    @operation("DELETE", "leases/{id}/dpu-services/{name}", "Remove a service from a DPU", scope="lease", host="lease")
    def remove_dpu_service(self, id: int, name: str) -> None:
        """Begin to remove a service that no chain uses. A missing service is not an error."""

    @operation("GET", "leases/{id}/dpu-chains", "List the chains on a DPU", host="lease")
    def dpu_chains(self, id: int) -> list[DpuChainInfo]:
        """List the chains of a lease, sorted by name."""

    @operation("GET", "leases/{id}/dpu-chains/{name}", "Get a chain on a DPU", host="lease")
    def dpu_chain(self, id: int, name: str) -> DpuChainInfo:
        """Return a chain with its state."""

    @operation(
        "PUT",
        "leases/{id}/dpu-chains/{name}",
        "Connect interfaces on a DPU by a chain",
        scope="lease",
        body="DpuChain",
        host="lease",
    )
    def connect_dpu_chain(self, id: int, name: str, *, switches: Sequence[Sequence[str]]) -> DpuChainInfo:
        """Create a chain, whose switches each connect some interfaces. The same chain again changes nothing.

        Interfaces are `p0` (a network port), `pf0` (the host's function), `pf0vf3` (a virtual function), `edge:net1`
        (an interface of a service) and `edge:net1@blue` (with an address of a network). None may be in use by another
        chain or lease. Returns before they are connected.
        """

    @operation("DELETE", "leases/{id}/dpu-chains/{name}", "Remove a chain from a DPU", scope="lease", host="lease")
    def remove_dpu_chain(self, id: int, name: str) -> None:
        """Begin to remove a chain. A missing chain is not an error."""

    @operation("GET", "leases/{id}/dpu-networks", "List the networks of a DPU", host="lease")
    def dpu_networks(self, id: int) -> list[DpuNetworkInfo]:
        """List the networks of a lease, sorted by name."""

    @operation("GET", "leases/{id}/dpu-networks/{name}", "Get a network of a DPU", host="lease")
    def dpu_network(self, id: int, name: str) -> DpuNetworkInfo:
        """Return a network with its state."""

    @operation(
        "PUT", "leases/{id}/dpu-networks/{name}", "Create a network of a DPU", scope="lease", body="DpuNetwork",
        host="lease",
    )  # fmt: skip
    def create_dpu_network(
        self, id: int, name: str, *, subnet: str = "", gateway: str = "", addresses: int | None = None,
        network: str = "", prefix: int | None = None, gateway_index: int | None = None, mtu: int | None = None,
    ) -> DpuNetworkInfo:  # fmt: skip
        """Create a network, of which interfaces of services get addresses. The same one again changes nothing.

        Give either a `subnet` with the number of `addresses` and perhaps a `gateway`, or a `network` that is divided
        into subnets with `prefix`, whose gateway is the address `gateway_index`. The range must be one that the config
        of the blueprint allows, and in use by no other lease.
        """

    @operation("DELETE", "leases/{id}/dpu-networks/{name}", "Remove a network of a DPU", scope="lease", host="lease")
    def remove_dpu_network(self, id: int, name: str) -> None:
        """Begin to remove a network that no chain uses. A missing network is not an error."""

    @operation("GET", "leases/{id}/dpu-volumes", "List the volumes of a DPU", host="lease")
    def dpu_volumes(self, id: int) -> list[DpuVolumeInfo]:
        """List the volumes of a lease, sorted by name."""

    @operation("GET", "leases/{id}/dpu-volumes/{name}", "Get a volume of a DPU", host="lease")
    def dpu_volume(self, id: int, name: str) -> DpuVolumeInfo:
        """Return a volume with its state and its device in the host."""

    @operation(
        "PUT", "leases/{id}/dpu-volumes/{name}", "Create a volume of a DPU", scope="lease", body="DpuVolume",
        host="lease",
    )  # fmt: skip
    def create_dpu_volume(
        self, id: int, name: str, *, policy: str, size_gib: int, mode: str = "block", access: str = "ReadWriteOnce",
        function: str = "pf", hotplug: bool | None = None,
    ) -> DpuVolumeInfo:  # fmt: skip
        """Create a volume, and attach it to the host of the DPU. The same one again changes nothing.

        `policy` is a storage policy that the config of the blueprint allows, `mode` is `block` or `filesystem`, and
        `access` an access mode of Kubernetes. The card emulates a `function` for it, `pf` or `vf`; a `pf` is plugged in
        for it unless `hotplug` is false. Its data ends with it. Returns before it is attached.
        """

    @operation("DELETE", "leases/{id}/dpu-volumes/{name}", "Remove a volume of a DPU", scope="lease", host="lease")
    def remove_dpu_volume(self, id: int, name: str) -> None:
        """Begin to detach and remove a volume with its data. A missing volume is not an error."""

    @operation("GET", "leases/{id}/dpu-vpcs", "List the VPCs of a DPU", host="lease")
    def dpu_vpcs(self, id: int) -> list[DpuVpcInfo]:
        """List the VPCs of a lease, of which there is one at most."""

    @operation("GET", "leases/{id}/dpu-vpcs/{name}", "Get a VPC of a DPU", host="lease")
    def dpu_vpc(self, id: int, name: str) -> DpuVpcInfo:
        """Return a VPC with its state."""

    @operation(
        "PUT", "leases/{id}/dpu-vpcs/{name}", "Create a VPC of a DPU", scope="lease", body="DpuVpc", host="lease"
    )
    def create_dpu_vpc(
        self, id: int, name: str, *, isolation: str, networks: Sequence[DpuVirtualNetwork], routed: bool = False
    ) -> DpuVpcInfo:
        """Create a VPC, whose virtual networks have interfaces of the DPU. The same one again changes nothing.

        `isolation` is an isolation class, and the subnets are in ranges, that the config of the blueprint allows. None
        of its interfaces and addresses may be in use, and a DPU is in one VPC at most. Returns before it is ready.
        """

    @operation("DELETE", "leases/{id}/dpu-vpcs/{name}", "Remove a VPC of a DPU", scope="lease", host="lease")
    def remove_dpu_vpc(self, id: int, name: str) -> None:
        """Begin to remove a VPC with its virtual networks. A missing VPC is not an error."""

    @operation("GET", "leases/{id}/dpu-credentials", "List the credentials of a DPU", host="lease")
    def dpu_credentials(self, id: int) -> list[DpuCredentialInfo]:
        """List the credentials of a lease for the DPU cluster, sorted by name, without their secrets."""

    @operation(
        "PUT",
        "leases/{id}/dpu-credentials/{name}",
        "Request a credential of a DPU",
        scope="lease",
        body="DpuCredential",
        host="lease",
    )
    def request_dpu_credential(self, id: int, name: str, *, ttl: str | float | dt.timedelta) -> DpuCredentialInfo:
        """Request a credential for the DPU cluster that is valid for `ttl` from now. Returns before it is issued."""

    @operation(
        "POST", "leases/{id}/dpu-credentials/{name}/kubeconfig", "Get the kubeconfig of a credential of a DPU",
        scope="lease", inside="DpuKubeconfig.kubeconfig", host="lease",
    )  # fmt: skip
    def read_dpu_credential(self, id: int, name: str) -> str:
        """Return the kubeconfig of a credential, once, and only to the owner, not to operators. Records an event."""

    @operation(
        "DELETE", "leases/{id}/dpu-credentials/{name}", "Remove a credential of a DPU", scope="lease", host="lease"
    )
    def remove_dpu_credential(self, id: int, name: str) -> None:
        """Begin to remove a credential, with its account. A missing credential is not an error."""
