"""Authentication of agents: by their token, or by a join code at their first hello."""

from __future__ import annotations

from typing import Any, cast

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from drydock.core import clock
from leases import agents
from leases.models import Agent
from leases.rest import tokens
from leases.rest.throttling import Buckets, TokenThrottle

PER_MINUTE = 120
"""The number of requests that one agent may send in a minute."""
BUCKETS = Buckets()


class Joining:
    """A request with a join code that was valid when the request came in."""

    def __init__(self, secret: str) -> None:
        self.secret = secret


class AgentAuthentication(BaseAuthentication):
    """Authenticate an agent by its token."""

    may_join = False

    def authenticate(self, request: Request) -> tuple[Any, Agent | Joining] | None:
        """Return the agent, or None if the request has no token. Raises AuthenticationFailed."""
        given = request.META.get("HTTP_AUTHORIZATION", "")
        if not given:
            return None
        scheme, _, secret = given.partition(" ")
        if scheme.lower() == "join" and self.may_join:
            if agents.valid_code(secret.strip()) is None:
                raise AuthenticationFailed("This join code is not valid: it was used, or has expired.")
            return None, Joining(secret.strip())
        if scheme.lower() != "bearer":
            raise AuthenticationFailed("Send the agent's token: `Authorization: Bearer ddk_...`.")
        return None, _agent(secret.strip())

    def authenticate_header(self, request: Request) -> str:
        """Return the `WWW-Authenticate` header of a 401 response."""
        return 'Bearer realm="drydock agents"'


class HelloAuthentication(AgentAuthentication):
    """Authenticate an agent by its token, or by a join code."""

    may_join = True


def _agent(secret: str) -> Agent:
    found = tokens.agent_of(secret)
    if found is None:
        raise AuthenticationFailed("This is not the token of an agent, or the agent was revoked.")
    agent, expired = found
    if expired:
        raise AuthenticationFailed("The token of this agent has expired. Join again with a new code.")
    return agent


class AgentThrottle(TokenThrottle):
    """Limits each agent to `PER_MINUTE` requests, and all joining hosts together to as many."""

    def allow_request(self, request: Request, view: Any) -> bool:
        """Return whether the request may proceed."""
        agent = cast(Any, request.auth)
        key = agent.pk if isinstance(agent, Agent) else 0
        self._wait = BUCKETS.take(key, PER_MINUTE, clock.monotonic())
        return self._wait == 0
