"""Network namespaces of accounts: an account gets the network interfaces of its leases, and its commands enter them.

Root makes the namespace, and only processes that root starts for the account enter it (`interfaces.local`). An account
has no privileges in it: it can neither change an interface nor move it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from blueprints.devices.scripts import COMMON, HANDING_BACK, REFUSED, STATE
from blueprints.devices.values import Account, refused_by, valid_key
from blueprints.hostshell import HostShell

LINK_IN_USE = r"""
# Why the host itself uses an interface, or nothing. An interface that carries the connection of the control account
# has an address, or one is on a bridge, bond or VLAN above it.
link_in_use() {
  command -v ip >/dev/null 2>&1 || { echo "The host has no ip (Debian: iproute2)."; return; }
  for upper in "/sys/class/net/$1"/upper_*; do
    [ ! -e "$upper" ] || { echo "$1 is part of ${upper##*/upper_}."; return; }
  done
  found=$(ip -o -4 addr show dev "$1" scope global 2>&1) || { echo "$1 cannot be read: $found"; return; }
  found="$found$(ip -o -6 addr show dev "$1" scope global | grep -v ' dynamic ')"
  [ -z "$found" ] || { echo "$1 has an address in the host's own network. Remove it first."; return; }
  found=$(ip route show default dev "$1"; ip -6 route show default dev "$1" | grep -v ' proto ra ')
  [ -z "$found" ] || echo "The host's default route uses $1."
}
links_of() {
  for each in "$1/sys/bus/pci/devices/$2"/net/*; do
    [ -e "$each" ] || continue
    case ${each##*/} in *[!A-Za-z0-9_.:@-]*|-*) echo "$each is not a valid name." >&2; return 1;; esac
    echo "${each##*/}"
  done
}
"""
"""Shell functions that also the set-up of devices uses: `link_in_use NAME`, `links_of ROOT ADDRESS`."""

_NAMESPACE = r"""
named() { ns=drydock-$1 mine=$state/network/$1; }
inside() { [ -e "/run/netns/$ns" ] && ip -n "$ns" -o link show dev "$1" >/dev/null 2>&1; }
word_of() { cat "/sys/class/net/$2/$1" 2>/dev/null; }
"""

ATTACH = (
    COMMON
    + LINK_IN_USE
    + _NAMESPACE
    + r"""
uid=$1 key=$2 root=$3 address=$4 mac=$5 gateway=$6; shift 6
named "$uid"
command -v nsenter >/dev/null 2>&1 || refuse 'The host has no nsenter (Debian: util-linux).'
if [ -s "$mine/$key" ]; then
  links=$(cut -d' ' -f1 "$mine/$key")
else
  links=$(links_of "$root" "$address") || exit 1
  [ -n "$links" ] || refuse "$address has no network interface in the host's own namespace."
  lines=
  for link in $links; do
    why=$(link_in_use "$link")
    [ -z "$why" ] || refuse "$why"
    up=down
    case $(ip -o link show dev "$link") in *'<UP,'*|*',UP,'*|*',UP>'*|*'<UP>'*) up=up;; esac
    lines="$lines$link $(word_of address "$link") $(word_of mtu "$link") $up
"
  done
  mkdir -p "$mine" && printf %s "$lines" >"$mine/.$key.new" && mv -f "$mine/.$key.new" "$mine/$key" || exit 1
fi
[ -e "/run/netns/$ns" ] || ip netns add "$ns" || refuse "The network namespace $ns cannot be made."
ip -n "$ns" link set dev lo up || refuse "The network namespace $ns cannot be used."
for link in $links; do
  inside "$link" || ip link set dev "$link" netns "$ns" || refuse "$link cannot be moved to a network namespace."
  [ -z "$mac" ] || ip -n "$ns" link set dev "$link" address "$mac" || refuse "$link cannot get the address $mac."
  for each do ip -n "$ns" address replace "$each" dev "$link" || refuse "$link cannot get the address $each."; done
  ip -n "$ns" link set dev "$link" up || refuse "$link cannot be switched on."
  [ -z "$gateway" ] || ip -n "$ns" route replace default via "$gateway" dev "$link" ||
    refuse "$gateway cannot be the gateway of $link."
  set -- ; gateway=
  inside "$link" && [ ! -e "/sys/class/net/$link" ] || refuse "$link is not in the network namespace $ns."
  echo "$link"
done
"""
)
"""$1 uid, $2 key, $3 root of the tree, $4 PCI address, $5 MAC or empty, $6 gateway or empty, then addresses.

Moves the interfaces of the function into the namespace of the account. Prints their names. Addresses and gateway are
for the first interface. May be repeated.
"""

_DETACHING = (
    _NAMESPACE
    + r"""
# The number of a namespace is in the name of the link that each of its threads has. A first thread that has exited has
# none, while the others of its process go on.
processes_inside() {
  number=$(stat -L -c %i "/run/netns/$ns") || return 1
  echo /proc/[0-9]*/task/[0-9]*/ns/net | xargs ls -ld 2>/dev/null |
    sed -n "s,^.* /proc/\([0-9]*\)/task/[0-9]*/ns/net -> net:\[$number\]\$,\1,p" | sort -un
}
take_back() {
  while read -r link mac mtu up; do
    [ -n "$link" ] || continue
    if inside "$link"; then
      ip -n "$ns" address flush dev "$link" && ip -n "$ns" link set dev "$link" down || return 1
      [ -z "$mtu" ] || ip -n "$ns" link set dev "$link" mtu "$mtu" || return 1
      ip -n "$ns" link set dev "$link" netns $$ || return 1
    fi
    [ -e "/sys/class/net/$link" ] || { echo "$link is no longer in the host." >&2; continue; }
    [ "$(word_of address "$link")" = "$mac" ] || ip link set dev "$link" address "$mac" || return 1
    [ "$up" = down ] || ip link set dev "$link" up
  done <"$mine/$1"
  rm -f "$mine/$1" "$mine/.$1.new"
}
leave_namespace() {
  rmdir "$mine" 2>/dev/null || [ ! -e "$mine" ] || return 0
  if [ -e "/run/netns/$ns" ]; then
    round=0
    while left=$(processes_inside) && [ -n "$left" ] && [ $round -lt 50 ]; do
      kill -s KILL $left 2>/dev/null
      sleep 0.1 2>/dev/null || sleep 1
      round=$((round + 1))
    done
    [ -z "$left" ] || refuse "Processes $(echo $left) do not leave the network namespace $ns."
    ip netns delete "$ns" || exit 1
  fi
  rmdir "$state/network" 2>/dev/null
  return 0
}
"""
)

DETACH = (
    f"[ -e {STATE}/network ] || exit 0\n"
    + COMMON
    + HANDING_BACK
    + _DETACHING
    + r"""
uid=$1 key=$2
if [ "$uid" = - ]; then
  for each in "$state"/network/*/"$key"; do [ ! -e "$each" ] || { uid=${each%/*} uid=${uid##*/}; }; done
  [ "$uid" != - ] || leave
fi
named "$uid"
[ ! -e "$mine/$key" ] || take_back "$key" || refuse "The network interfaces of $key cannot be moved back."
leave_namespace
leave
"""
)
"""$1 uid, or `-` for that of the record, $2 key. Moves the lease's interfaces back, as they were before.

With the last interface of the account, the processes in its namespace are ended, and the namespace is removed.
"""

DETACH_ACCOUNT = (
    f"[ -e {STATE}/network ] || exit 0\n"
    + COMMON
    + HANDING_BACK
    + _DETACHING
    + r"""
named "$1"
for each in "$mine"/*; do
  [ ! -e "$each" ] || take_back "${each##*/}" || refuse "The network interfaces of uid $1 cannot be moved back."
done
leave_namespace
leave
"""
)
"""$1 uid. Moves all interfaces of the account back, before its uid gets another owner."""

ATTACHED = (
    f"[ -e {STATE}/network ] || exit 0\n"
    + COMMON
    + HANDING_BACK
    + _NAMESPACE
    + r"""
named "$1"
[ ! -e "$mine/$2" ] || echo "The host has a record of the network interfaces of the lease."
[ -e "$mine" ] || [ ! -e "/run/netns/$ns" ] || echo "The network namespace $ns is still there."
leave
"""
)
"""$1 uid, $2 key. Prints one sentence for each thing that is left."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """A PCI function whose network interfaces a lease gets, and how they are set up in its namespace."""

    address: str
    """PCI address."""
    root: str = ""
    """Captured tree that lists the interfaces; empty for that of the host."""
    mac: str = ""
    """Empty: as it is."""
    addresses: Sequence[str] = ()
    """IP addresses with prefix length."""
    gateway: str = ""


def namespace_of(account: Account) -> str:
    """Return the name of the network namespace of an account."""
    return f"drydock-{account.uid}"


def attach(there: HostShell, account: Account, key: str, link: Link) -> tuple[str, ...]:
    """Move the interfaces of a function into the namespace of the account, and return their names. May be repeated.

    Raises DeviceRefused, which says why, such as that the host itself uses an interface.
    """
    words = (link.root, link.address, link.mac, link.gateway, *link.addresses)
    with refused_by(REFUSED):
        return tuple(there.as_root(ATTACH, str(account.uid), valid_key(key), *words).split())


def detach(there: HostShell, account: Account | None, key: str) -> None:
    """Move the interfaces of a lease back to the host. May be repeated. Raises DeviceRefused.

    If the account is not known, it is that of the host's record.
    """
    with refused_by(REFUSED):
        there.as_root(DETACH, str(account.uid) if account else "-", valid_key(key))


def detach_account(there: HostShell, uid: int) -> None:
    """Move all interfaces of an account back to the host before the account is removed. May be repeated."""
    with refused_by(REFUSED):
        there.as_root(DETACH_ACCOUNT, str(uid))


def attached(there: HostShell, account: Account, key: str) -> tuple[str, ...]:
    """Return a sentence for everything that is left of the interfaces of a lease. Empty after `detach`."""
    with refused_by(REFUSED):
        return tuple(there.as_root(ATTACHED, str(account.uid), valid_key(key)).splitlines())


def has_network(uid: int) -> bool:
    """Return whether an account of this machine has network interfaces, without starting a program."""
    return Path(STATE, "network", str(uid)).exists()
