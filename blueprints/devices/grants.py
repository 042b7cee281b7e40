"""Grant devices to the account of a lease, take them back, and prove that nothing is left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from blueprints.devices import scripts, usage
from blueprints.devices.values import Account, Device, Granted, Holder, Node, refused_by, valid_key
from blueprints.hostshell import HostShell


def grant(there: HostShell, account: Account, key: str, devices: Sequence[Device]) -> Granted:
    """Give the account of the lease `key` these devices, and no others. May be repeated.

    First the account's processes are confined to its devices, then the nodes are opened. An account may have several
    leases with devices. Without devices, the account is only confined. Raises DeviceRefused.
    """
    words = _opening(devices)
    lines = _as_root(there, scripts.GRANT, str(account.uid), str(account.gid), valid_key(key), *words).splitlines()
    facts = [line.partition(" ")[::2] for line in lines]
    numbers = [rest.partition(" ")[::2] for name, rest in facts if name == "node"]
    return Granted(
        mechanism=next(rest for name, rest in facts if name == "mechanism"),
        numbers={path: number for number, path in numbers},
        moved=sum(int(rest) for name, rest in facts if name == "moved"),
        warnings=tuple(rest for name, rest in facts if name == "warning"),
    )


def revoke(there: HostShell, account: Account | None, key: str, devices: Sequence[Device]) -> tuple[str, ...]:
    """Take the devices of the lease `key` back. May be repeated.

    Their nodes are then open to root only. Running processes keep what they have open: end them, and see `users`.
    If the account is not known, it is that to which the host has granted them. Returns a sentence for each node that
    is a device of the host itself and was left as it is. Raises DeviceRefused.
    """
    uid = str(account.uid) if account else "-"
    return tuple(_as_root(there, scripts.REVOKE, uid, valid_key(key), *_closing(devices)).splitlines())


def remaining(there: HostShell, account: Account, key: str, devices: Sequence[Device]) -> tuple[str, ...]:
    """Return one sentence for each right to the devices that the lease `key` still has. Empty after `revoke`."""
    said = _as_root(there, scripts.REMAINING, str(account.uid), valid_key(key), *_closing(devices))
    return tuple(said.splitlines())


def hand_back(there: HostShell, devices: Sequence[Device]) -> None:
    """Give the nodes the owner and mode that they had before Drydock first granted them. Raises DeviceRefused."""
    _as_root(there, scripts.HAND_BACK, *(node.path for node in _nodes(devices)))


def has_devices(uid: int) -> bool:
    """Return whether an account of this machine has been granted devices, without starting a program."""
    return Path(scripts.STATE, "leases", str(uid)).exists()


def revoke_account(there: HostShell, account: int | str) -> None:
    """Take back all devices of an account (a uid or name) before it is removed. May be repeated."""
    _as_root(there, scripts.REVOKE_ACCOUNT, str(account))


def hand_back_all(there: HostShell) -> None:
    """Hand back all nodes that no lease holds, before the host itself is handed back. May be repeated."""
    _as_root(there, scripts.HAND_BACK_ALL)


def close(there: HostShell, devices: Sequence[Device]) -> None:
    """Close the nodes that no lease holds to everyone but root. Raises DeviceRefused."""
    _as_root(there, scripts.CLOSE, *(node.path for node in _nodes(devices) if not node.shared))


def users(there: HostShell, numbers: Iterable[str]) -> tuple[Holder, ...]:
    """Return the processes that have a device with one of the numbers (`MAJOR:MINOR`) open or mapped."""
    return _holders(_as_root(there, usage.USERS, *sorted(set(numbers))))


def end_users(there: HostShell, account: Account, devices: Sequence[Device]) -> tuple[Holder, ...]:
    """End the account's processes that have devices open which it does not hold any more. Call it after `revoke`.

    Returns the processes that are left: those that did not end, and processes of other accounts (except root and system
    accounts) that have an exclusive node open.
    """
    return _holders(_as_root(there, usage.END_USERS, str(account.uid), *_opening(devices)))


def _holders(printed: str) -> tuple[Holder, ...]:
    words = [line.split(" ", 3) for line in printed.splitlines()]
    return tuple(
        Holder(pid=int(pid), uid=int(uid), number=number, name=name[0] if name else "")
        for pid, uid, number, *name in words
    )


def _nodes(devices: Iterable[Device]) -> list[Node]:
    return list(dict.fromkeys(node for device in devices for node in device.nodes))


def _opening(devices: Iterable[Device]) -> list[str]:
    return [f"{'S' if node.shared else 'E'} {node.number or '-'} {node.path}" for node in _nodes(devices)]


def _closing(devices: Iterable[Device]) -> list[str]:
    return [f"{node.number or '-'} {node.path}" for node in _nodes(devices)]


def _as_root(there: HostShell, script: str, *arguments: str) -> str:
    with refused_by(scripts.REFUSED):
        return there.as_root(script, *arguments)
