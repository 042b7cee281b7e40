"""Errors of network drivers. The docstring of a class is its default message, `scope` what is tried next."""

from __future__ import annotations

from typing import ClassVar

from blueprints.answers import Scope
from drydock.core.errors import DrydockError


class NetworkError(DrydockError):
    """The network of the machine could not be switched."""

    code = "network"
    scope: ClassVar[Scope] = Scope.OPERATOR
    """`Scope.STEP` if another attempt may succeed, `Scope.OPERATOR` if a person must fix something first."""

    @property
    def plain(self) -> str:
        """The error without switches, ports and accounts, for people who only lease the machine."""
        return (type(self).__doc__ or "").strip().partition("\n")[0]


class NetworkUnreachable(NetworkError):
    """The switch did not answer in time."""

    code = "network_unreachable"
    scope = Scope.STEP


class NetworkBusy(NetworkError):
    """The switch is busy, and asks to try again later."""

    code = "network_busy"
    scope = Scope.STEP


class NetworkAnswerInvalid(NetworkError):
    """The switch sent an answer that cannot be understood."""

    code = "network_answer_invalid"
    scope = Scope.STEP


class NetworkRefused(NetworkError):
    """The switch refused the request, with its reason."""

    code = "network_refused"
    scope = Scope.STEP


class NetworkLoginRefused(NetworkError):
    """The switch refused the credential."""

    code = "network_login_refused"


class NetworkUnknown(NetworkError):
    """The switch does not have this port or network."""

    code = "network_unknown"
