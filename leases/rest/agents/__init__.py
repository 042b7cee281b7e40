"""The addresses that agents call. Only agents' tokens reach them, and those tokens reach nothing else.

They are no part of the API of users, and of its OpenAPI document; `drydock_agent.messages` defines what is sent.
"""

from leases.rest.agents.views import ADDRESSES, URLS

__all__ = ["ADDRESSES", "URLS"]
