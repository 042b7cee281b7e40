"""Validations that operators run in the foreground.

One validation tests whether the cloud of an account meets the provider contract. The other tests whether ended leases
leave anything on their resources.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from django.conf import settings
from pydantic import ValidationError

from blueprints import registry
from blueprints.cloud.client import Client
from blueprints.cloud.faults import SdkNotInstalled
from blueprints.cloud.kind import CloudHost
from blueprints.cloud.validation.journal import Journal
from blueprints.cloud.validation.tags import RunTags, run_tags
from blueprints.cloud.validation.values import Report
from blueprints.hosts import HOST
from blueprints.hostshell import HostShell
from blueprints.leftovers import NAMES, ROWS, Outside, Pages, Party, Planted, Row, Run, Suite
from blueprints.leftovers import Report as leftovers_Report
from blueprints.specs import LeaseView
from drydock.core.errors import Conflict, DrydockError, InvalidRequest, NotSupported
from interfaces.command import Command
from interfaces.filesystem import Filesystem
from interfaces.transport import Transport
from leases.engine.core import installation, specs
from leases.engine.core.transitions import record_event
from leases.models import Lease
from leases.operations import credentials
from leases.operations.blueprints import row as blueprint_of
from leases.operations.callers import Caller, operator_only
from leases.validation.input_checks import checked


@dataclass(frozen=True, kw_only=True)
class Account:
    """What a validation works with: a credential and the client of its cloud.

    `run_tags` are the tags of the objects that the validation creates, and `journal` records what the validation does.
    """

    name: str
    kind: CloudHost
    client: Client
    run_tags: RunTags
    journal: Journal
    secrets: Mapping[str, Any] = field(repr=False)

    def image_words(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the image selectors after checking them, or the kind's default selectors. Raises InvalidRequest."""
        image = self.kind.Config.model_fields["image"]
        if not given:
            words: dict[str, str] = image.get_default(call_default_factory=True).wanted()
            return words
        try:
            config = self.kind.Config.model_validate({"credential": self.name, "image": dict(given)})
        except ValidationError as error:
            raise InvalidRequest(error.errors()[0]["msg"], field="image") from None
        return config.image.wanted()


@checked
def open_account(who: Caller, name: str, *, kind: str = "") -> Account:
    """Return the account of a credential for a validation. Makes no external call.

    Raises NotFound, NotAllowed, InvalidRequest if the kind is unknown or does not match the credential, and
    Conflict while the installation is suspended.
    """
    operator_only(who, "validate a provider")
    here = installation.current()
    if here.problem:
        raise Conflict(
            f"The installation is suspended: {here.problem}",
            hint="An operator can check and confirm it: `drydock installation`.",
        )
    row = credentials.row_of(name)
    secrets = dict(row.secrets or {})
    found = _kind(kind, name, secrets)
    try:
        client = found.client(secrets)
    except (ValidationError, SdkNotInstalled, ValueError) as error:
        raise InvalidRequest(_why(error), field="credential") from None
    folder = Path(settings.DRYDOCK.state) / "validation"
    return Account(
        name=name, kind=found, client=client, secrets=secrets, run_tags=_run_tags(here.short),
        journal=Journal(folder / f"{here.short}-{name}-{found.name}.jsonl"),
    )  # fmt: skip


def _why(error: Exception) -> str:
    """Return why a credential does not fit the kind, without quoting its values."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"The credential is invalid: {'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)


def _kind(wanted: str, name: str, secrets: Mapping[str, Any]) -> CloudHost:
    """Return the requested kind, the kind of the credential's blueprints, or the only kind that accepts its fields.

    Raises InvalidRequest if no single kind fits.
    """
    if wanted:
        found = registry.kind(wanted)
        if not isinstance(found, CloudHost):
            problem = f"{wanted} is not a kind of blueprint that orders hosts from a cloud."
            raise InvalidRequest(problem, field="kind", hint=_clouds_hint())
        return found
    used = {row.kind for row in credentials.users_of(name)}
    clouds = _clouds()
    fitting = [one for one in clouds if one.name in used] or [one for one in clouds if _understands(one, secrets)]
    if len(fitting) != 1:
        said = ", ".join(one.name for one in fitting)
        which = (
            f"The credential could belong to {said}."
            if fitting
            else "The credential does not match any kind of blueprint that orders hosts from a cloud."
        )
        raise InvalidRequest(f"{which} Specify the kind.", field="kind", hint=_clouds_hint())
    return fitting[0]


def _clouds() -> list[CloudHost]:
    found = []
    for name in registry.names():
        try:
            kind = registry.kind(name)
        except DrydockError:
            continue
        if isinstance(kind, CloudHost):
            found.append(kind)
    return found


def _clouds_hint() -> str:
    return f"--kind must be one of: {', '.join(one.name for one in _clouds())}."


def _understands(kind: CloudHost, secrets: Mapping[str, Any]) -> bool:
    try:
        kind.Credential.model_validate(dict(secrets))
    except ValidationError:
        return False
    return True


def _run_tags(short: str) -> RunTags:
    return run_tags(f"validate-{short}", proof=lambda key: _proof(short, key))


def _proof(short: str, key: str) -> str:
    """Return the proof of ownership for objects of a validation.

    It differs from the proof for the machine of a lease, so that neither can be mistaken for the other.
    """
    secret = str(settings.DRYDOCK_OWNERSHIP_KEY).encode()
    return hmac.new(secret, f"validation/{short}/{key}".encode(), hashlib.sha256).hexdigest()[:40]


def tell(who: Caller, account: Account, report: Report) -> None:
    """Record an event with the result of a validation."""
    failed = ", ".join(one.check for one in report.findings if one.verdict in ("failed", "not run"))
    outcome = "All checks passed." if report.ok else f"Failed: {failed or 'some objects are left'}."
    record_event(
        "credential.validated", f"Credential {account.name} as {account.kind.name}: {outcome}", actor=who.actor,
        details={"run": report.run, "left": list(report.left)},
    )  # fmt: skip


_SECONDS = 120.0

_PROGRAM = "exec /bin/sh -s"

_AS_ACCOUNT = r"""
command -v setpriv >/dev/null 2>&1 || { echo "setpriv is not installed." >&2; exit 1; }
exec setpriv --reuid "$1" --regid "$1" --clear-groups /bin/sh -s
"""


class Tenants(Protocol):
    """Requests leases of one blueprint, one after another, for a validation."""

    def take(self) -> int:
        """Request a lease, wait until it is active, and return its id."""

    def take_beside(self) -> int | None:
        """Request a second lease while another is active, and return its id, or None if there is no room."""

    def end(self, lease: int) -> None:
        """Release a lease, and wait until it is cleaned completely."""


def chosen(only: Collection[str] = (), skip: Collection[str] = ()) -> tuple[Row, ...]:
    """Return the selected rows (types of leftovers) of a validation. Raises InvalidRequest for an unknown row."""
    for option, names in (("only", only), ("skip", skip)):
        if wrong := sorted(set(names) - set(NAMES)):
            raise InvalidRequest(
                f"Row {wrong[0]!r} does not exist.", field=option, hint=f"Choose one of: {', '.join(NAMES)}."
            )
    return tuple(row for row in ROWS if (not only or row.name in only) and row.name not in skip)


def type_of(who: Caller, blueprint: str) -> str:
    """Return the resource type of the blueprint's leases. Raises NotFound, NotAllowed."""
    return str(blueprint_of(who, blueprint, "validate a host").resource_type)


def validate_leftovers(
    tenants: Tenants, *, rows: Collection[Row] = ROWS, told: Callable[[str], None] = lambda sentence: None
) -> leftovers_Report:
    """Create every kind of leftover with one lease, end the lease, and look for the leftovers with the next lease.

    Ends all leases that the validation requests. Raises the errors of `tenants`, and InterfaceError.
    """
    suite = Suite(rows)
    with ExitStack() as stack:

        def taken(lease: int | None) -> LeaseView | None:
            if lease is None:
                return None
            stack.callback(lambda: tenants.end(lease))
            return _view(lease)

        first = taken(tenants.take())
        assert first is not None
        wanted = first.resource.type == HOST and any(row.accomplice for row in rows)
        second = taken(tenants.take_beside()) if wanted else None
        beside = _party(second, "the lease beside") if second else None
        told("Planting leftovers.")
        planted, outside = _planted(suite, first, beside)
        told(f"{len(suite.rows) - len(planted.refused)} of {len(suite.rows)} leftovers were planted. Ending the lease.")
        assert isinstance(beside, Party | None)
        tenants.end(first.id)
        next_one = taken(tenants.take())
        assert next_one is not None
        told("Checking for leftovers.")
        return suite.look(planted, _party(next_one, "the next lease"), beside=beside, outside=outside)


def _planted(suite: Suite, lease: LeaseView, beside: Party | Pages | None) -> tuple[Planted, Outside | None]:
    root = _root(lease)
    planted = suite.plant(
        _party(lease, "the lease"), own_account=root is not None, above=str(lease.resource.facts.get("home", "")),
        beside=beside if isinstance(beside, Party) else None,
    )  # fmt: skip
    return planted, _outside(root) if root else None


def _view(lease: int) -> LeaseView:
    return specs.lease_view(Lease.objects.select_related("owner", "resource__blueprint").get(pk=lease))


def _party(lease: LeaseView, name: str) -> Party | Pages:
    for interface in ("command", "filesystem"):
        try:
            found = lease.interface(interface)
        except NotSupported:
            continue
        if isinstance(found, Command):
            return Party.of(found, name)
        if isinstance(found, Filesystem):
            return Pages(name=name, files=found)
    raise NotSupported("Leases of this blueprint provide neither commands nor files, so leftovers cannot be tested.")


def _root(lease: LeaseView) -> Transport | None:
    """Return a control connection to the host of a lease, or of a lease that it depends on.

    Returns None if there is no such connection, because the account does not belong to the lease alone.
    """
    if control := lease.control():
        return control.transport
    return next((found for one in lease.resource.parents.values() if (found := _root(one))), None)


def _outside(root: Transport) -> Outside:
    def run(script: str, *arguments: str) -> Run:
        return lambda text: HostShell(root, _SECONDS).as_root(script, *arguments, stdin=text.decode())

    return Outside(root=run(_PROGRAM), account=lambda uid: run(_AS_ACCOUNT, str(uid)))
