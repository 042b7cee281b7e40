"""The host of a card, leased for one phase, for cards whose image is installed by rshim.

Everything is done by root or the control account of the host, in a folder of the lease's home that the lease cannot
read. The home is removed when the lease ends, and the image with its secrets with it.
"""

from __future__ import annotations

from blueprints.amounts import Amounts
from blueprints.answers import Answer, Failed, Json, Need, NeededLease, NeededLock, Ready, Scope
from blueprints.dpu.bluefield.preparing import FOLDER, by_rshim, card_of, host_of
from blueprints.hosts import HOST
from blueprints.hostshell import NeedsOperator, told
from blueprints.layered.account import Account, account
from blueprints.layered.within import Within
from blueprints.specs import Control, LeaseView, Spec
from interfaces.errors import Unreachable
from interfaces.filesystem import Filesystem, RootedFilesystem

LEASE = "rshim_host"
_BASE, _FILES = ".drydock-dpu", "image"
_MINE = 'umask 077; mkdir -p -- "$1" && chown "${SUDO_UID:-0}" -- "$1"'
_FREE = "df -Pk -- \"$1\" | awk 'NR == 2 { print $4 }'"
_ROOM = 64 << 20
"""Bytes that stay free on the host beside the image."""


def needed(spec: Spec) -> Need | None:
    """Return the request for a lease on the host of the card, for this phase; None if the host is unknown."""
    host = host_of(card_of(spec))
    if host is None:
        return None
    wanted = NeededLease(name=LEASE, type=HOST, amounts=Amounts(), on_resources=(host.id,), lifetime="phase")
    return Need(leases=(wanted,))


@told
def have_host(spec: Spec, memo: Json) -> Answer:
    """Lease the host of the card for this build, and take the lock on the rshim, so that two cards do not share it."""
    if not by_rshim(spec):
        return Ready()
    if LEASE not in spec.parents:
        return needed(spec) or _unknown(spec)
    control_of(spec)
    folder = spec.resource.facts[FOLDER]
    if "rshim" not in spec.locks:
        scope = f"rshim of {spec.parents[LEASE].resource.key}"
        return Need(locks=(NeededLock(name="rshim", scope=scope, candidates=(folder,)),))
    return Ready()


def _unknown(spec: Spec) -> Failed:
    message = f"The host of card {card_of(spec).name} is unknown. Register it."
    return Failed(scope=Scope.OFFER, code="host_unknown", message=message)


@told
def make_folder(spec: Spec, memo: Json) -> Answer:
    """Make the folder for the image on the host, where nobody else can read it. Fails if the image has no room."""
    if not by_rshim(spec):
        return Ready()
    there = account_on(spec)
    there.closed()
    base = base_of(there)
    there.make_base(base)
    there.run(_MINE, f"{base}/{_FILES}")
    free, size = int(there.run(_FREE, base)) << 10, int(spec.resource.facts["image_bytes"])
    if free < size + _ROOM:
        message = f"Host {_lease(spec).resource.name} has {free >> 20} MiB free, and the image takes {size >> 20} MiB."
        return Failed(scope=Scope.OFFER, code="no_room", message=message)
    return Ready()


def control_of(spec: Spec) -> Control:
    """Return the connection to the control account of the host. Raises NeedsOperator, Unreachable."""
    lease = _lease(spec)
    found = lease.control()
    if found is None:
        raise NeedsOperator(
            f"Host {lease.resource.name} gives its leases no accounts of their own, so rshim would be used in an "
            "account that tenants use.",
            hint="Set accounts: per_lease in the blueprint of the host.",
        )
    return found


def account_on(spec: Spec) -> Account:
    """Return the account of the lease on the host, as root reaches it. Raises NeedsOperator, Unreachable."""
    control_of(spec)
    return account(_lease(spec), spec.deadline)


def base_of(there: Account) -> str:
    """Return the folder for jobs and the image."""
    return f"{there.home}/{_BASE}"


def files_on(spec: Spec) -> Filesystem:
    """Return the folder for the image, as the control account reaches it."""
    transport, there = control_of(spec).transport, account_on(spec)
    return RootedFilesystem(Within(transport, f"{base_of(there)}/{_FILES}", env={}), still_mine=lambda: None)


def path_of(there: Account, name: str) -> str:
    """Return the path of a file in the folder for the image."""
    return f"{base_of(there)}/{_FILES}/{name}"


def _lease(spec: Spec) -> LeaseView:
    if LEASE not in spec.parents:
        raise Unreachable("The lease on the host of the card is gone.")
    return spec.parents[LEASE]
