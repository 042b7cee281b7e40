"""Step actions that attach network cards and VFs to a lease: by network namespace or by vfio, with their settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from blueprints import devices
from blueprints.accelerators import access, hostscripts, layouts
from blueprints.accelerators.host import host_of, pci_function, shell
from blueprints.accelerators.layouts import Network
from blueprints.accelerators.nodes import known_of
from blueprints.answers import Answer, Failed, Json, Ready, Scope
from blueprints.devices import Account, Link
from blueprints.devices.values import DeviceRefused, refused_by
from blueprints.hosts import lease_of
from blueprints.hostshell import HostShell, told
from blueprints.layered.within import account_of
from blueprints.specs import Spec
from interfaces.endpoints import LocalEndpoint

_SETTINGS = ("mac", "vlan", "min_mbits", "max_mbits", "trust", "spoofchk")
"""Settings of a VF that its card enforces, whatever the holder of the VF does."""


@told
def check_group(spec: Spec, memo: Json) -> Answer:
    """Refuse a device that is passed through if the rest of its IOMMU group is not leased along with it."""
    known = spec.resource.facts["device"]
    if known.get("attach") != "vfio" or not known.get("group"):
        return Ready()
    along = {one.resource.facts.get("device", {}).get("id") for one in lease_of(spec).members()}
    if missing := [one for one in known["group"] if one not in along]:
        others = ", ".join(missing)
        return _refused(
            "partial_group",
            f"{known['id']} can be passed through only together with the rest of its IOMMU group "
            f"{known['iommu_group']}: {others}. Request them in one group of leases.",
        )
    return Ready()


@told
def read_settings(spec: Spec, memo: Json) -> Answer:
    """Read the settings of a VF before its lease, in a step of their own, so that they are known before they change."""
    if not _wanted(spec) or "vf_before" in lease_of(spec).facts:
        return Ready()
    if (there := shell(spec)) is None:
        return access.no_control()
    return Ready(facts={"vf_before": _read(spec, there)})


@told
def apply_settings(spec: Spec, memo: Json) -> Answer:
    """Set MAC, VLAN, rates, trust and spoof check of a VF as declared, and read them back."""
    if not (wanted := _wanted(spec)):
        return Ready()
    if (there := shell(spec)) is None:
        return access.no_control()
    return _set(spec, there, wanted)


@told
def restore_settings(spec: Spec, memo: Json) -> Answer:
    """Give a VF the settings that it had before its lease, and read them back."""
    before = lease_of(spec).facts.get("vf_before")
    if not before or spec.resource.host() is None:
        return Ready()
    if (there := shell(spec)) is None:
        return access.no_control()
    return _set(spec, there, before)


@told
def attach(spec: Spec, memo: Json) -> Answer:
    """Move the interfaces of the device into the network namespace of the lease's account, if that is declared."""
    lease, known = lease_of(spec), known_of(spec)
    if known.get("attach") != "netns":
        return Ready()
    host = host_of(lease)
    if host is None:
        return access.host_gone()
    control = host.control()
    endpoint = getattr(account_of(control.transport), "endpoint", None) if control is not None else None
    if not isinstance(endpoint, LocalEndpoint) and (
        host.asked.exclusive or host.facts.get("isolation", host.resource.attributes.get("isolation")) == "machine"
    ):
        return Ready(facts={"network": {"namespace": "", "interfaces": []}})
    if control is None:
        return _refused(
            "no_account",
            f"Leases share an account on {host.resource.name}, so {known['id']} cannot be kept from other leases. "
            "Use a host whose leases have accounts of their own.",
        )
    if not isinstance(endpoint, LocalEndpoint):
        return _refused(
            "no_namespace",
            f"On {host.resource.name}, sshd starts the sessions of a lease as its account, and only root can enter a "
            "network namespace. Lease the whole host, or declare the attachment vfio or none.",
        )
    if (there := shell(spec)) is None:
        return access.no_control()
    declared = _declared(spec) or Network()
    account = Account.of(control)
    link = Link(
        address=pci_function(spec), root=spec.config.captured, mac=declared.mac or "", addresses=declared.addresses,
        gateway=declared.gateway,
    )  # fmt: skip
    try:
        names = devices.attach(there, account, lease.key, link)
    except DeviceRefused as error:
        return _refused("not_attached", str(error))
    variables = {**lease.facts.get("environment", {}), "DRYDOCK_INTERFACES": " ".join(names)}
    network = {"namespace": devices.namespace_of(account), "interfaces": list(names), "uid": account.uid,
               "gid": account.gid}  # fmt: skip
    return Ready(facts={"network": network, "environment": variables})


@told
def detach(spec: Spec, memo: Json) -> Answer:
    """Move the interfaces back to the host as they were, and prove that nothing is left of them."""
    lease = lease_of(spec)
    if known_of(spec).get("attach") != "netns" or spec.resource.host() is None:
        return Ready()
    if (there := shell(spec)) is None:
        return access.no_control()
    known = lease.facts.get("network") or {}
    account = Account(uid=known["uid"], gid=known["gid"]) if "uid" in known else None
    devices.detach(there, account, lease.key)
    left = devices.attached(there, account, lease.key) if account is not None else ()
    return Failed(scope=Scope.STEP, code="still_attached", message=" ".join(left)) if left else Ready()


def _declared(spec: Spec) -> Network | None:
    known = spec.resource.facts["device"]
    if known["class"] not in layouts.NETWORK:
        return None
    return layouts.first(spec.config.networks, known["id"], spec.resource.attributes.get("model", ""))


def _wanted(spec: Spec) -> Json:
    """Return the declared settings of a VF. Other devices have none."""
    declared = _declared(spec)
    if declared is None or spec.resource.facts["device"]["class"] != "vf":
        return {}
    return {name: getattr(declared, name) for name in _SETTINGS if getattr(declared, name) is not None}


def _read(spec: Spec, there: HostShell) -> Json:
    function = pci_function(spec)
    with refused_by(hostscripts.REFUSED):
        said = there.as_root(hostscripts.VF_SHOW, spec.config.captured, spec.config.tools, function)
    number, _, text = said.partition("\n")
    return settings_of(text, int(number))


def settings_of(printed: str, number: int) -> Json:
    """Return the settings of a VF from the JSON that `ip -j link show` prints for its card. Raises DeviceRefused."""
    try:
        cards = json.loads(printed)
        found = next(one for card in cards for one in card.get("vfinfo_list", ()) if one.get("vf") == number)
    except (ValueError, AttributeError, StopIteration):
        raise DeviceRefused(f"ip does not report the VF {number}: {printed.strip()[:160]}") from None
    vlans = found.get("vlan_list") or [found]
    rate: Mapping[str, Any] = found.get("rate") or {}
    read = {
        "mac": found.get("address", found.get("mac")),
        "vlan": vlans[0].get("vlan", 0),
        "min_mbits": rate.get("min_tx", 0),
        "max_mbits": rate.get("max_tx", found.get("tx_rate", 0)),
        "trust": found.get("trust"),
        "spoofchk": found.get("spoofchk"),
    }
    return {name: value for name, value in read.items() if value is not None}


def _words(settings: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the arguments of ip for settings. The rates belong together: a change of one sets the other to 0."""
    found = [("mac", settings["mac"])] if "mac" in settings else []
    found += [("vlan", str(settings["vlan"]))] if "vlan" in settings else []
    rates = [word for name, option in (("max_mbits", "max_tx_rate"), ("min_mbits", "min_tx_rate"))
             if name in settings for word in (option, str(settings[name]))]  # fmt: skip
    switches = [(name, "on" if settings[name] else "off") for name in ("spoofchk", "trust") if name in settings]
    return [*found, *([tuple(rates)] if rates else []), *switches]


def _set(spec: Spec, there: HostShell, wanted: Json) -> Answer:
    """Change the settings that differ, and compare again."""
    now = _read(spec, there)
    if "min_mbits" in wanted or "max_mbits" in wanted:
        rates = {name: now[name] for name in ("min_mbits", "max_mbits")}
        wanted = rates | wanted
    changed = {name: value for name, value in wanted.items() if now.get(name) != value}
    if {"min_mbits", "max_mbits"} & changed.keys():
        changed |= {name: wanted[name] for name in ("min_mbits", "max_mbits")}
    function = pci_function(spec)
    for words in _words(changed):
        with refused_by(hostscripts.REFUSED):
            there.as_root(hostscripts.VF_SET, spec.config.captured, spec.config.tools, function, *words)
    now = _read(spec, there) if changed else now
    left = [f"{name} is {now.get(name)}, not {value}" for name, value in wanted.items() if now.get(name) != value]
    if left:
        return _refused("vf_settings", f"The card does not keep the settings of {function}: {', '.join(left)}.")
    return Ready()


def _refused(code: str, message: str) -> Failed:
    return Failed(scope=Scope.OPERATOR, code=code, message=message)
