"""Operations on agents, and on the hardware of hosts, which agents or Drydock itself report."""

from __future__ import annotations

from drydock_client.operations import Operations, operation
from drydock_client.values import AgentInfo, AgentOrderInfo, HardwareInfo, HardwareScanInfo, JoinCodeInfo


class Agents(Operations):
    """Operations on agents, for operators only, and on the hardware of hosts, of which owners see their devices."""

    @operation("GET", "agents", "List agents", scope="operate", query="AgentFilter")
    def agents(self, *, blueprint: str | None = None, all: bool = False) -> list[AgentInfo]:
        """Return the agents, and the hosts whose agents are missing. `all` includes revoked ones.

        Raises NotAllowed.
        """

    @operation("GET", "agents/{id}", "Show an agent", scope="operate")
    def agent(self, id: int) -> AgentInfo:
        """Return an agent with its last orders. Raises NotFound, NotAllowed."""

    @operation("POST", "agents/join-codes", "Create a join code", scope="operate", body="NewJoinCode", status=201)
    def create_join_code(self, blueprint: str, *, host: str = "", ttl: str | None = None) -> JoinCodeInfo:
        """Create a code with which one agent may join a blueprint once.

        With `host`, the name or id of a host of the blueprint, only an agent there may use it, and replaces the agent
        that joined before. The code is valid for `ttl`: at most and by default one hour. Raises NotFound, NotAllowed,
        InvalidRequest, NotSupported.
        """

    @operation("POST", "agents/{id}/revoke", "Revoke an agent", scope="operate", body="Empty")
    def revoke_agent(self, id: int) -> AgentInfo:
        """Stop accepting anything from an agent. The resources that it reported serve no new leases.

        Raises NotFound, NotAllowed.
        """

    @operation(
        "POST", "agents/{id}/orders", "Give an agent an order", scope="operate", body="NewAgentOrder", status=201
    )
    def order_agent(self, id: int, *, action: str = "discovery") -> AgentOrderInfo:
        """Tell an agent to do something: `discovery` scans the hardware and reports it at once.

        An order that has not ended is not given twice. Raises NotFound, NotAllowed, InvalidRequest, Conflict if the
        agent has not joined.
        """

    @operation("GET", "hardware", "List the hardware of hosts", query="HardwareFilter", cursor="after")
    def hardware_reports(self, *, host: str = "", blueprint: str = "") -> list[HardwareInfo]:
        """List the hardware of hosts as it was last reported, without the devices, in the order of the reports' ids.

        `host` is the name or the id of a host. Owners see only hosts in which their leases hold devices.
        """

    @operation("GET", "hardware/{id}", "Show the hardware of a host")
    def hardware_report(self, id: int) -> HardwareInfo:
        """Return the hardware of a host, device by device: which are ready, which are not and why, and their leases.

        Owners see only the devices that their leases hold. Raises NotFound, also if none is the caller's.
        """

    @operation(
        "POST", "hardware/{id}/scan", "Scan the hardware of a host again", scope="operate", body="Empty", status=202
    )
    def scan_hardware(self, id: int) -> HardwareScanInfo:
        """Request a new report now: an agent is ordered to send one, or a worker reads the host.

        Raises NotFound, NotAllowed, and Conflict if the blueprint is disabled, or if the agent is revoked or has not
        joined.
        """
