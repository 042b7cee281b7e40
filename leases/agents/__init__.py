"""Agents: how they join and renew their tokens, what becomes of their reports, and the orders that they fetch.

An agent can only act for the host that it joined for. Everything that it sends is untrusted.
"""

from leases.agents.administration import agent, agents, create_join_code, order_agent, revoke_agent
from leases.agents.enrolment import join, renew, server_version, valid_code
from leases.agents.hardware import accept, accept_unchanged
from leases.agents.orders import due, finish

__all__ = [
    "accept",
    "accept_unchanged",
    "agent",
    "agents",
    "create_join_code",
    "due",
    "finish",
    "join",
    "order_agent",
    "renew",
    "revoke_agent",
    "server_version",
    "valid_code",
]
