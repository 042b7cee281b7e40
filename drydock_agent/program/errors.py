"""Errors of the agent. Their messages are for the people who run it."""

from __future__ import annotations


class AgentError(Exception):
    """The agent cannot do what it was asked to do."""

    exit_code = 1


class Unavailable(AgentError):
    """The server did not answer, or asked to try again later."""

    def __init__(self, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Refused(AgentError):
    """The server refused a request. Sending the same again does not help."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class NotAccepted(Refused):
    """The server does not accept the token or the join code. The agent must join again."""

    exit_code = 3
