"""Whether anything outlives a lease of a blueprint: the leftover suite, carried out by leases of this installation."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack
from typing import Protocol

from blueprints.hosts import HOST
from blueprints.hostshell import HostShell
from blueprints.leftovers import NAMES, ROWS, Outside, Pages, Party, Planted, Report, Row, Run, Suite
from blueprints.specs import LeaseView
from drydock.core.errors import InvalidRequest, NotSupported
from interfaces.command import Command
from interfaces.filesystem import Filesystem
from interfaces.transport import Transport
from leases.engine.core import specs
from leases.models import Lease
from leases.operations.blueprints import row as blueprint_of
from leases.operations.callers import Caller

_SECONDS = 120.0
_PROGRAM = "exec /bin/sh -s"
_AS_ACCOUNT = r"""
command -v setpriv >/dev/null 2>&1 || { echo "There is no setpriv." >&2; exit 1; }
exec setpriv --reuid "$1" --regid "$1" --clear-groups /bin/sh -s
"""


class Tenants(Protocol):
    """Whoever takes leases of one blueprint for a validation, one after another."""

    def take(self) -> int:
        """The number of a lease that is active."""

    def take_beside(self) -> int | None:
        """The same while another is active; None where there is no room for it now."""

    def end(self, lease: int) -> None:
        """Release a lease, and wait until everything of it is cleaned."""


def chosen(only: Collection[str] = (), skip: Collection[str] = ()) -> tuple[Row, ...]:
    """The rows that are wanted. Raises InvalidRequest for a name that is none."""
    for field, names in (("only", only), ("skip", skip)):
        if wrong := sorted(set(names) - set(NAMES)):
            raise InvalidRequest(f"There is no row {wrong[0]!r}.", field=field, hint=f"There are: {', '.join(NAMES)}.")
    return tuple(row for row in ROWS if (not only or row.name in only) and row.name not in skip)


def type_of(who: Caller, blueprint: str) -> str:
    """What leases of the blueprint are asked for as. Raises NotFound, NotAllowed."""
    return str(blueprint_of(who, blueprint, "validate a host").resource_type)


def validate(
    tenants: Tenants, *, rows: Collection[Row] = ROWS, told: Callable[[str], None] = lambda sentence: None
) -> Report:
    """Plant all rows by one lease, end it, and look by the next. All leases that were taken end.

    Raises what `tenants` raises, and InterfaceError.
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
        told("Planting.")
        planted, outside = _planted(suite, first, beside)
        told(f"{len(suite.rows) - len(planted.refused)} of {len(suite.rows)} rows are planted. Ending the lease.")
        assert isinstance(beside, Party | None)
        tenants.end(first.id)
        next_one = taken(tenants.take())
        assert next_one is not None
        told("Looking.")
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
    raise NotSupported("Leases of this blueprint have neither commands nor files, so nothing can be planted by them.")


def _root(lease: LeaseView) -> Transport | None:
    """The way to the host past the account of a lease, or of the lease that it stands on; None where there is none:
    then the account is not the lease's own."""
    if control := lease.control():
        return control.transport
    return next((found for one in lease.resource.parents.values() if (found := _root(one))), None)


def _outside(root: Transport) -> Outside:
    def run(script: str, *arguments: str) -> Run:
        return lambda text: HostShell(root, _SECONDS).as_root(script, *arguments, stdin=text.decode())

    return Outside(root=run(_PROGRAM), account=lambda uid: run(_AS_ACCOUNT, str(uid)))
