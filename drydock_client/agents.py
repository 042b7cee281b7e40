"""Operations on agents, and on reports about the hardware of hosts."""

from __future__ import annotations

from drydock_client.operations import Operations, operation
from drydock_client.values import (
    AgentInfo,
    AgentInstallation,
    AgentOrderInfo,
    HardwareInfo,
    HardwareScanInfo,
    JoinCodeInfo,
)


class Agents(Operations):
    """Operations on agents, for operators only, and on the hardware of hosts.

    Owners see only the devices that their leases hold.
    """

    @operation("GET", "agents", "List agents", scope="operate", query="AgentFilter")
    def agents(self, *, blueprint: str | None = None, all: bool = False) -> list[AgentInfo]:
        """Return the agents, including agents that a blueprint requires and that have not joined.

        If `all` is true, revoked agents are included. Raises NotAllowed.
        """

    @operation("GET", "agents/{id}", "Show an agent", scope="operate")
    def agent(self, id: int) -> AgentInfo:
        """Return an agent, with the last orders that it was given. Raises NotFound, NotAllowed."""

    @operation("POST", "agents/join-codes", "Create a join code", scope="operate", body="NewJoinCode", status=201)
    def create_join_code(self, blueprint: str, *, host: str = "", ttl: str | None = None) -> JoinCodeInfo:
        """Create a code with which one agent may join a blueprint once.

        With `host`, the name or id of a host of the blueprint, only an agent on that host may use the code, and it
        replaces an agent that joined on that host before. The code is valid for `ttl`: one hour by default, which is
        also the maximum. Raises NotFound, NotAllowed, InvalidRequest, NotSupported.
        """

    @operation(
        "POST", "resources/{id}/agent", "Install the agent on a host", scope="operate", body="NewAgent", host="resource"
    )
    def install_agent(
        self, id: int, *, server: str, blueprint: str = "", ca: str = "", start: bool = True
    ) -> AgentInstallation:
        """Install the server's version of the agent over the host's control connection, and let the agent join.

        `server` is the address at which the host reaches this server. `blueprint` may be omitted if only one blueprint
        accepts reports about the host. `ca` contains certificates in PEM format that the agent trusts. A failed
        installation is undone. Installing the agent again replaces it. Raises NotFound, NotAllowed, InvalidRequest,
        NotSupported, Conflict.
        """

    @operation("DELETE", "resources/{id}/agent", "Remove the agent from a host", scope="operate", host="resource")
    def uninstall_agent(self, id: int) -> AgentInstallation:
        """Remove the agent, its account and its folder from a host, and revoke the agent.

        Raises NotFound, NotAllowed, NotSupported, Conflict.
        """

    @operation("POST", "agents/{id}/revoke", "Revoke an agent", scope="operate", body="Empty")
    def revoke_agent(self, id: int) -> AgentInfo:
        """Revoke an agent: all its messages are rejected, and the resources that it reported serve no new leases.

        Raises NotFound, NotAllowed.
        """

    @operation("POST", "agents/{id}/confirm", "Confirm the endpoint of an agent", scope="operate")
    def confirm_agent(self, id: int, fingerprint: str, *, endpoint: str = "") -> AgentInfo:
        """Trust the endpoint and the certificate that an agent announced, so that the server may call it.

        `fingerprint` is the SHA-256 of the certificate, as `drydock-agent status` shows it on the agent's host.
        `endpoint` is the HOST:PORT that was shown as announced; if the agent announces another one by now, nothing is
        trusted. It may be omitted only while the agent has announced the certificate with no other endpoint. Raises
        NotFound, NotAllowed, Conflict.
        """

    @operation(
        "POST", "agents/{id}/orders", "Give an agent an order", scope="operate", body="NewAgentOrder", status=201
    )
    def order_agent(self, id: int, *, action: str = "discovery") -> AgentOrderInfo:
        """Give an agent an order.

        `discovery` makes the agent scan the hardware of its host and report at once. `upgrade` installs the server's
        version of the agent; if the new version does not say hello to the server, the old version stays. While an order
        for the same action has not ended, no second order is given. Raises NotFound, NotAllowed, InvalidRequest, and
        Conflict if the agent has not joined.
        """

    @operation("GET", "hardware", "List the hardware of hosts", query="HardwareFilter", cursor="after")
    def hardware_reports(self, *, host: str = "", blueprint: str = "") -> list[HardwareInfo]:
        """List the last report on the hardware of each host, without the devices, in the order of the reports' ids.

        `host` is the name or the id of a host. Owners see only hosts in which their leases hold devices.
        """

    @operation("GET", "hardware/{id}", "Show the hardware of a host")
    def hardware_report(self, id: int) -> HardwareInfo:
        """Return the hardware of a host, device by device: which are ready, which are not and why, and their leases.

        Owners see only the devices that their leases hold. Raises NotFound, also if the caller's leases hold no device.
        """

    @operation(
        "POST", "hardware/{id}/scan", "Scan the hardware of a host again", scope="operate", body="Empty", status=202
    )
    def scan_hardware(self, id: int) -> HardwareScanInfo:
        """Request a new report now: an agent is ordered to send one, or a worker reads the host.

        Raises NotFound, NotAllowed, and Conflict if the blueprint is disabled, or if the agent is revoked or has not
        joined.
        """
