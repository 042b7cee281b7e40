"""Operations on agents, which report the hardware of hosts. Only operators may call them."""

from __future__ import annotations

from drydock_client.operations import Operations, operation
from drydock_client.values import AgentInfo, AgentInstallation, AgentOrderInfo, JoinCodeInfo


class Agents(Operations):
    """Operations on agents."""

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

    @operation(
        "POST", "resources/{id}/agent", "Install the agent on a host", scope="operate", body="NewAgent", host="resource"
    )
    def install_agent(
        self, id: int, *, server: str, blueprint: str = "", ca: str = "", start: bool = True
    ) -> AgentInstallation:
        """Install the server's version of the agent on a host over its control connection, and have it join.

        `server` is the address at which the host reaches this server. `blueprint` may be omitted if only one takes
        reports of the host. `ca` are certificates in PEM that the agent trusts. What failed is undone, and doing it
        again installs it anew. Raises NotFound, NotAllowed, InvalidRequest, NotSupported, Conflict.
        """

    @operation("DELETE", "resources/{id}/agent", "Remove the agent from a host", scope="operate", host="resource")
    def uninstall_agent(self, id: int) -> AgentInstallation:
        """Remove the agent from a host with its account and folder, and revoke it.

        Raises NotFound, NotAllowed, NotSupported, Conflict.
        """

    @operation("POST", "agents/{id}/revoke", "Revoke an agent", scope="operate", body="Empty")
    def revoke_agent(self, id: int) -> AgentInfo:
        """Stop accepting anything from an agent. The resources that it reported serve no new leases.

        Raises NotFound, NotAllowed.
        """

    @operation("POST", "agents/{id}/confirm", "Confirm the certificate of an agent", scope="operate")
    def confirm_agent(self, id: int, fingerprint: str) -> AgentInfo:
        """Trust the endpoint and the certificate that an agent announced, so that the server may call it.

        `fingerprint` is the SHA-256 of the certificate, as on the agent's host. Raises NotFound, NotAllowed, Conflict.
        """

    @operation(
        "POST", "agents/{id}/orders", "Give an agent an order", scope="operate", body="NewAgentOrder", status=201
    )
    def order_agent(self, id: int, *, action: str = "discovery") -> AgentOrderInfo:
        """Tell an agent to do something.

        `discovery` scans the hardware and reports it at once. `upgrade` installs the server's version of the agent,
        which takes over after it has said hello; the version before stays otherwise. An order that has not ended is
        not given twice. Raises NotFound, NotAllowed, InvalidRequest, Conflict if the agent has not joined.
        """
