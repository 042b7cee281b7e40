"""Sessions with the BMC of a host, and the answers of steps to the errors of BMCs."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from blueprints.answers import Answer, Failed, Json, Scope, Wait
from blueprints.baremetal.registration import controller_of
from blueprints.bmc.contract import Bmc
from blueprints.bmc.errors import (
    BmcAnswerInvalid,
    BmcBusy,
    BmcCertificateChanged,
    BmcCertificateUnknown,
    BmcError,
    BmcLoginRefused,
    BmcRefused,
    BmcUnreachable,
)
from blueprints.contract import Act
from blueprints.hostshell import told
from blueprints.specs import ResourceView, Spec

SWITCHED_OFF = "switched_off"
"""Code of a failure: the host is off, though it should be on."""
NOT_SERVING = frozenset(
    {error.code for error in (BmcUnreachable, BmcLoginRefused, BmcCertificateChanged, BmcCertificateUnknown)}
    | {SWITCHED_OFF}
)
"""Codes of failures after which a host serves no new leases until a check succeeds."""
_AGAIN = (BmcUnreachable, BmcAnswerInvalid, BmcRefused)
"""Errors that may be gone at the next attempt. All others need a person."""
_PAUSE = 5.0


def patience(spec: Spec) -> float:
    """Return the seconds that a session may last in a phase during which a host must be found out of reach quickly."""
    return float(min(spec.deadline * 0.9, spec.config.bmc_timeout))


def whole(spec: Spec) -> float:
    """Return the seconds that a session may last in a phase that nobody waits for, such as enrolment."""
    return spec.deadline * 0.9


@contextmanager
def session(resource: ResourceView, seconds: float) -> Iterator[Bmc]:
    """Open a session with the host's BMC, and close it. Raises BmcError and NeedsOperator."""
    found = controller_of(resource)
    with found.driver.open(found.access, found.credential, deadline=seconds) as opened:
        yield opened


def bmc_told(act: Act) -> Act:
    """Wrap an act so that errors of the BMC, and errors in reaching the host, become its answer."""
    inner = told(act)

    @functools.wraps(act)
    def answered(spec: Spec, memo: Json) -> Answer:
        try:
            return inner(spec, memo)
        except BmcError as error:
            return refusal(error, memo)

    return answered


def refusal(error: BmcError, memo: Json) -> Answer:
    """Return the answer to an error of a BMC: wait if it is busy, fail otherwise."""
    if isinstance(error, BmcBusy):
        return Wait(after=min(error.retry_after or _PAUSE, 60.0), memo=memo, sentence=error.message)
    scope = Scope.STEP if isinstance(error, _AGAIN) else Scope.OPERATOR
    return Failed(scope=scope, code=error.code, message=str(error))
