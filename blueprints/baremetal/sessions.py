"""Sessions with the BMC of a host, and the answers of steps to the errors of BMCs."""

from __future__ import annotations

import datetime as dt
import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from blueprints.answers import Answer, Failed, Json, Scope, Wait
from blueprints.baremetal.registration import controller_of
from blueprints.bmc.contract import Bmc
from blueprints.bmc.errors import (
    TRANSIENT,
    BmcBusy,
    BmcCertificateChanged,
    BmcCertificateUnknown,
    BmcError,
    BmcLoginRefused,
    BmcUnreachable,
)
from blueprints.contract import Act
from blueprints.hostshell import told
from blueprints.specs import ResourceView, Spec
from drydock.core import clock

logger = logging.getLogger(__name__)

SWITCHED_OFF = "switched_off"
"""Code of a failure: the host is off, though it should be on."""
NOT_SERVING = frozenset(
    {error.code for error in (BmcUnreachable, BmcBusy, BmcLoginRefused, BmcCertificateChanged, BmcCertificateUnknown)}
    | {SWITCHED_OFF}
)
"""Codes of failures after which a host serves no new leases until a check succeeds."""
_PAUSE = 5.0
_BUSY = "busy_since"
_PATIENT = 600.0
"""Seconds for which a BMC may be busy in a phase that nobody waits for."""


def since(moment: str) -> float:
    """Return the seconds that have passed since a moment in ISO format."""
    return (clock.now() - dt.datetime.fromisoformat(moment)).total_seconds()


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
        memo = dict(memo)
        busy_since = memo.pop(_BUSY, None) or clock.now().isoformat()
        try:
            return inner(spec, memo)
        except BmcBusy as error:
            return _busy(spec, error, memo, busy_since)
        except BmcError as error:
            return _refusal(spec, error)

    return answered


def _busy(spec: Spec, error: BmcBusy, memo: Json, busy_since: str) -> Answer:
    """Return the answer to a BMC that is busy: wait, but not for longer than the phase allows."""
    left = _longest(spec, memo) - since(busy_since)
    if left <= 0:
        return _refusal(spec, error)
    after = min(error.retry_after or _PAUSE, left)
    return Wait(after=after, memo={**memo, _BUSY: busy_since}, sentence=sentence_of(spec, error))


def _longest(spec: Spec, memo: Json) -> float:
    """Return the seconds for which a BMC may be busy. A host that cannot be used must be found out quickly."""
    if spec.phase not in ("activate", "deactivate", "hand_over", "check"):
        return _PATIENT
    return float(spec.config.power_timeout if memo else spec.config.bmc_timeout)


def _refusal(spec: Spec, error: BmcError) -> Failed:
    scope = Scope.STEP if isinstance(error, TRANSIENT) else Scope.OPERATOR
    return Failed(scope=scope, code=error.code, message=sentence_of(spec, error))


def sentence_of(spec: Spec, error: BmcError) -> str:
    """Return what went wrong. Owners of leases do not read addresses and accounts of BMCs; these are logged instead."""
    if spec.lease is None:
        return str(error)
    logger.warning("%s, phase %s: %s", spec.resource.key, spec.phase, error)
    return error.plain
