"""The connection of a step to the BMC of a registered card, and the answers of steps to the errors of BMCs."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from blueprints.answers import Answer, Failed, Json, Scope, Wait
from blueprints.bluefield.logins import FACTORY, counted
from blueprints.bmc import tls
from blueprints.bmc.errors import (
    TRANSIENT,
    BmcBusy,
    BmcCertificateChanged,
    BmcCertificateUnknown,
    BmcError,
    BmcLoginRefused,
    BmcLoginsSpent,
    BmcUnreachable,
)
from blueprints.bmc.redfish import Access, Redfish
from blueprints.contract import Act
from blueprints.hostshell import told
from blueprints.specs import ResourceView, Spec

if TYPE_CHECKING:
    from blueprints.bluefield.session import CardSession

Login = Mapping[str, str]
PIN, REFUSED = "bmc_pin", "bmc_refused"
"""Facts: the certificate that an operator has confirmed, and the one that an operator has refused."""
UNREACHABLE = frozenset(
    error.code
    for error in (
        BmcUnreachable, BmcBusy, BmcLoginRefused, BmcLoginsSpent, BmcCertificateChanged, BmcCertificateUnknown,
    )
)  # fmt: skip
"""Codes of failures after which a card serves no new leases until a check succeeds."""
_PAUSE, _LONGEST = 5.0, 600.0


def where(access: Access) -> str:
    """Return the name by which a BMC is unique, whichever of its systems is registered: address and port."""
    return Redfish().identity(access.model_copy(update={"system": ""}))


def has_bmc(resource: ResourceView) -> bool:
    """Return whether a card is registered with its BMC. The others are reached by rshim from their hosts only."""
    return bool(resource.registration.get("bmc"))


def access_of(resource: ResourceView) -> Access:
    """Return how the BMC of a card is reached, with the certificate that an operator has confirmed."""
    access = Access.model_validate(resource.registration["bmc"])
    pinned = resource.facts.get(PIN, {})
    if pinned.get("bmc") == where(access) and not access.fingerprint:
        return access.model_copy(update={"fingerprint": pinned["sha256"]})
    return access


def configured(resource: ResourceView) -> Login:
    """Return the login of the card's blueprint, or else that of the factory."""
    name = resource.blueprint.config.bmc_credential
    return {**FACTORY, **resource.blueprint.credentials.get(name, {})}


def own(resource: ResourceView) -> Login:
    """Return the login of the card itself; empty if it has none."""
    given = {name: value for name, value in resource.credential.items() if value}
    return {"username": configured(resource)["username"], **given} if "password" in given else {}


def login_of(resource: ResourceView) -> Login:
    """Return the login of an enrolled card."""
    return own(resource) or configured(resource)


@contextmanager
def opened(resource: ResourceView, login: Mapping[str, str], seconds: float) -> Iterator[CardSession]:
    """Log in to the BMC of a card, and end the session afterwards. Raises BmcError, also BmcLoginsSpent.

    The login is counted. A session is used and never basic authentication, with which each request is a login.
    """
    access = access_of(resource)
    logins = counted(resource, access, str(resource.registration["serial"]))
    client = Redfish().client(access, login, deadline=seconds, logins=logins)
    from blueprints.bluefield.session import CardSession

    with CardSession(client, access.system) as session:
        yield session


def bmc_told(act: Act) -> Act:
    """Wrap an act so that errors of the BMC become its answer. A check fails where other phases wait."""
    inner = told(act)

    @functools.wraps(act)
    def answered(spec: Spec, memo: Json) -> Answer:
        try:
            return inner(spec, memo)
        except BmcBusy as error:
            if spec.phase == "check":
                return Failed(scope=Scope.STEP, code=error.code, message=str(error))
            return Wait(after=min(error.retry_after or _PAUSE, _LONGEST), memo=memo, sentence=str(error))
        except BmcCertificateUnknown as error:
            known = spec.resource.facts.get(REFUSED, {})
            refused = tls.refused_before(error.certificate, known, "`fingerprint` in `bmc`")
            return refused or Failed(scope=Scope.OPERATOR, code=error.code, message=str(error))
        except BmcError as error:
            scope = Scope.STEP if isinstance(error, TRANSIENT) else Scope.OPERATOR
            return Failed(scope=scope, code=error.code, message=str(error))

    return answered
