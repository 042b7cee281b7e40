"""The serial console of a host: the one that its registration names, or else the one of its BMC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from blueprints.baremetal.registration import BMC, NO_CONSOLE, controller_of, said
from blueprints.bmc.contract import Bmc, Serial
from blueprints.bmc.errors import BmcLacks
from blueprints.consoles import registry
from blueprints.consoles.contract import ConsoleDriver
from blueprints.hostshell import NeedsOperator
from blueprints.specs import LeaseView, ResourceView
from drydock.core.errors import NotFound, NotSupported
from interfaces.console import Console, Line
from interfaces.console.contract import Connect
from interfaces.contract import Interface
from interfaces.deadline import Deadline

_SERIAL = Serial.__name__.lower()


def opened(lease: LeaseView, still_mine: Callable[[], None]) -> Interface:
    """Return the console of the host of a lease. Calls neither the host nor its BMC.

    Raises NotSupported if the host has none.
    """
    return Console.beside(line_of(lease.resource), still_mine=still_mine)


def line_of(host: ResourceView) -> Connect:
    """Return a function that opens the console of a host. Calls neither the host nor its BMC.

    Raises NotSupported if the host has none.
    """
    given = dict(host.registration.get("console") or {"driver": BMC})
    name = given.pop("driver", "")
    if name == NO_CONSOLE:
        raise NotSupported(f"{host.name} was registered without a console.", capability="console")
    if name != BMC:
        return lambda deadline, take: _registered(host, name, given, deadline, take)
    if _SERIAL not in host.facts.get("bmc_functions", ()):
        raise NotSupported(
            f"The BMC of {host.name} offers no console that Drydock can open.", capability="console",
            hint="An operator can register another way to it: drydock resources change NAME console=...",
        )  # fmt: skip
    return lambda deadline, take: _of_bmc(host, deadline, take)


def _of_bmc(host: ResourceView, deadline: Deadline, take: bool) -> Line:
    found = controller_of(host)
    session = found.driver.open(found.access, found.credential, deadline=deadline.remaining)
    try:
        if not isinstance(session, Serial):
            raise BmcLacks("The BMC of this host offers no console.")
        return _LineOfSession(session, session.serial(deadline, take=take))
    except BaseException:
        session.close()
        raise


class _LineOfSession(Line):
    """A line together with the session of the BMC that carries it."""

    def __init__(self, session: Bmc, line: Line) -> None:
        self._session, self._line = session, line

    def read(self, wait: float) -> bytes:
        return self._line.read(wait)

    def write(self, content: bytes) -> int:
        return self._line.write(content)

    def close(self) -> None:
        self._line.close()
        self._session.close()


def _registered(host: ResourceView, name: str, given: Mapping[str, Any], deadline: Deadline, take: bool) -> Line:
    try:
        found = registry.driver(name)
        access = found.Access.model_validate(given)
    except (NotFound, ValidationError) as error:
        raise NeedsOperator(f"The console of the registration cannot be used: {said(error)}") from None
    return found.connect(access, _credential(host, found), deadline=deadline, take=take)


def _credential(host: ResourceView, used: ConsoleDriver) -> dict[str, str]:
    """Return the login with the fields that the driver knows. The host's own credential takes precedence."""
    if used.Credential is None:
        return {}
    config = host.blueprint.config
    name = config.console_credential or config.bmc_credential
    chosen = {
        field: value for field, value in host.credential_or(name).items() if field in used.Credential.model_fields
    }
    try:
        used.Credential.model_validate(chosen)
    except ValidationError as error:
        raise NeedsOperator(
            f"The login of the console is incomplete: {said(error)}",
            hint="Name a credential as `console_credential` in the blueprint, or store one for this host.",
        ) from None
    return chosen
