"""The host that has the image if there is no web root, leased for one phase: the card's own, or a server for SCP.

The image is installed by rshim from the host that the card is in, or the BMC of the card fetches it by SCP from another
one (`scp`). Everything is done by root or the control account of the host, in a folder of the lease's home that the
lease cannot read. The home is removed when the lease ends, and the image with its secrets with it.
"""

from __future__ import annotations

from blueprints.amounts import Amounts
from blueprints.answers import Answer, Failed, Json, Need, NeededLease, NeededLock, Ready, Scope
from blueprints.dpu.bluefield.config import Config
from blueprints.dpu.bluefield.preparing import FOLDER, by_rshim, by_scp, card_of, host_of
from blueprints.hosts import HOST
from blueprints.hostshell import NeedsOperator, told
from blueprints.layered.account import Account, account
from blueprints.layered.within import Within
from blueprints.specs import Control, LeaseView, Spec
from interfaces.errors import Unreachable
from interfaces.filesystem import Filesystem, RootedFilesystem

LEASE, SERVER = "rshim_host", "scp_host"
"""Names of leases: on the host that the card is in, and on the one from which its BMC fetches by SCP."""
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


def lease_name(spec: Spec) -> str:
    """Return the name of the lease on the host that has the image; empty if a web root has it."""
    return LEASE if by_rshim(spec) else SERVER if by_scp(spec) else ""


@told
def have_host(spec: Spec, memo: Json) -> Answer:
    """Lease the host that has the image for this build.

    If the host installs it by rshim, take the lock on that rshim as well, so that two cards do not share it.
    """
    name = lease_name(spec)
    if not name:
        return Ready()
    if name not in spec.parents:
        return (needed(spec) or _unknown(spec)) if by_rshim(spec) else _server(spec.config)
    control_of(spec)
    if by_scp(spec):
        _check_elsewhere(spec)
    if by_rshim(spec) and "rshim" not in spec.locks:
        scope = f"rshim of {spec.parents[LEASE].resource.key}"
        return Need(locks=(NeededLock(name="rshim", scope=scope, candidates=(spec.resource.facts[FOLDER],)),))
    return Ready()


def _server(config: Config) -> Need | Failed:
    if config.scp is None:
        message = "The blueprint does not say any more from which host a BMC may fetch by SCP. Set `scp`."
        return Failed(scope=Scope.OFFER, code="protocol", message=message)
    wanted = dict(config.scp)
    return Need(leases=(NeededLease(name=SERVER, type=HOST, requirements=wanted, amounts=Amounts(), lifetime="phase"),))


def _check_elsewhere(spec: Spec) -> None:
    """Raise NeedsOperator if the image would be on the host of the card, whose network the installation may end."""
    own, server = host_of(card_of(spec)), spec.parents[SERVER].resource
    if own is not None and own.id == server.id:
        raise NeedsOperator(
            f"Host {server.name} is the host of the card, and may lose its network while the card is installed.",
            hint="Let `scp` require a host without BlueField cards, such as by its hostname.",
        )


def _unknown(spec: Spec) -> Failed:
    message = f"The host of card {card_of(spec).name} is unknown. Register it."
    return Failed(scope=Scope.OFFER, code="host_unknown", message=message)


@told
def make_folder(spec: Spec, memo: Json) -> Answer:
    """Make the folder for the image on the host, where nobody else can read it. Fails if the image has no room."""
    if not lease_name(spec):
        return Ready()
    there = account_on(spec)
    there.closed()
    base = base_of(there)
    there.make_base(base)
    there.run(_MINE, f"{base}/{_FILES}")
    free, size = int(there.run(_FREE, base)) << 10, int(spec.resource.facts["image_bytes"])
    if free < size + _ROOM:
        name = lease_of(spec).resource.name
        message = f"Host {name} has {free >> 20} MiB free, and the image takes {size >> 20} MiB."
        return Failed(scope=Scope.OFFER, code="no_room", message=message)
    return Ready()


def control_of(spec: Spec) -> Control:
    """Return the connection to the control account of the host. Raises NeedsOperator, Unreachable."""
    lease = lease_of(spec)
    found = lease.control()
    if found is None:
        raise NeedsOperator(
            f"Host {lease.resource.name} gives its leases no accounts of their own, so the image with its secrets "
            "would be in an account that tenants use.",
            hint="Set accounts: per_lease in the blueprint of the host.",
        )
    return found


def account_on(spec: Spec) -> Account:
    """Return the account of the lease on the host, as root reaches it. Raises NeedsOperator, Unreachable."""
    control_of(spec)
    return account(lease_of(spec), spec.deadline)


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


def lease_of(spec: Spec) -> LeaseView:
    """Return the lease on the host that has the image. Raises Unreachable if it is gone."""
    name = lease_name(spec)
    if name not in spec.parents:
        raise Unreachable("The lease on the host that has the image is gone.")
    return spec.parents[name]
