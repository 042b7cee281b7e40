"""Workloads as systemd units of their hosts: which are, what they may use, and the archives of their images.

A container runs as a unit if its host can run units, and as a job of the lease's account otherwise. What was decided
when the workload began is stored with it, so that any worker finds the same unit again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings

from blueprints.specs import LeaseView, UnitHost
from blueprints.units import Identity, Port, Unit, UnitCommand, needs_units, words
from interfaces.command import container
from interfaces.command.contract import Command
from interfaces.errors import LeaseEnded, NotStarted
from leases.engine.core import specs
from leases.models import Job, Lease
from leases.models.job import Watch

_UNIT, _ARCHIVE = "unit", "archive"
_COPYING = 0.5
"""The part of the time for a check of a job in which its archive is copied to the host."""


@dataclass(frozen=True, kw_only=True)
class Begun:
    """How a workload is begun: the words of its job, the folder to run them in, and its unit if it has one."""

    words: Any
    cwd: str = ""
    unit: Unit | None = None


def begun(lease: Lease, asked: Mapping[str, Any], variables: Mapping[str, str]) -> Begun:
    """Decide how the workload of an active lease is begun. Calls no host."""
    if not asked["image"] and not asked.get(_ARCHIVE):
        return Begun(words=asked["command"], cwd=asked["cwd"])
    view = specs.lease_view(lease)
    found = specs.unit_host_of(view)
    if found is not None:
        return of_unit(view, *found, asked)
    if asked.get(_ARCHIVE) or asked.get("ports"):
        return Begun(words=needs_units())
    return Begun(words=container.words(
        lease=view.key, image=asked["image"], command=asked["command"] or (), variables=variables, cwd=asked["cwd"]
    ))  # fmt: skip


def of_unit(view: LeaseView, below: LeaseView, host: UnitHost, asked: Mapping[str, Any]) -> Begun:
    """Return how the workload of the lease `view` is begun as a unit on the host of the lease `below`.

    The two are one lease unless the workload is that of a device.
    """
    whole = below.asked.exclusive or host.uid is None
    devices = list(_devices(view, below))
    unit = Unit(
        key=view.key, account=host.account,
        cpu_millicores=0 if whole else below.asked.amounts.cpu_millicores,
        ram_mib=0 if whole else below.asked.amounts.ram_mib,
        memory_nodes=",".join(sorted({node for one in devices if (node := _numa_node(one))}, key=int)),
        devices=tuple(dict.fromkeys(path for one in devices for path in one.facts.get("nodes", ()))),
        ports=tuple(Port.parse(text) for text in asked.get("ports", ())),
    )  # fmt: skip
    names = [name for one in devices for name in _device_names(one)]
    identity = None if host.uid is None or host.gid is None else Identity(uid=host.uid, gid=host.gid)
    return Begun(unit=unit, words=words(
        unit, image=asked["image"], archive=asked.get(_ARCHIVE, ""), command=asked["command"] or (),
        cwd=asked["cwd"], identity=identity, devices=names,
    ))  # fmt: skip


def _devices(view: LeaseView, below: LeaseView) -> Iterator[LeaseView]:
    """Yield the leases on devices that are opened to the account of the lease `below`: this one and its group's."""
    for one in (view, *view.members()):
        if one.resource.id != below.resource.id and one.facts.get("nodes") and _stands_on(one, below):
            yield one


def _stands_on(one: LeaseView, below: LeaseView) -> bool:
    return one.facts.get("stands_on") == below.id or any(parent.id == below.id for parent in one.parents.values())


def _device_names(one: LeaseView) -> list[str]:
    """Return the names by which podman is given a device: that of CDI if one was published, otherwise its nodes."""
    name = one.facts.get("container_device")
    return [name] if name else list(one.facts["nodes"])


def _numa_node(one: LeaseView) -> str:
    """Return the number of the NUMA node of a device, or an empty string."""
    name, _, number = (one.resource.locality[0] if one.resource.locality else "").rpartition(" ")
    return number if name == "NUMA node" and number.isdigit() else ""


def unit_of(watch: Watch | None) -> Unit | None:
    """Return the unit of a workload, or None if it is a job of the lease's account."""
    kept = (watch.workload or {}).get(_UNIT) if watch is not None else None
    return None if kept is None else Unit.from_json(kept)


def kept(asked: Mapping[str, Any], unit: Unit | None) -> dict[str, Any]:
    """Return the workload as it is stored once it has begun."""
    return dict(asked) if unit is None else {**asked, _UNIT: unit.to_json()}


def command(watch: Watch | None, lease: Lease, account: Command, check: Callable[[], None]) -> Command:
    """Return the command interface of a lease, whose job is the unit of its workload if it has one.

    Raises LeaseEnded if the host of the unit is gone.
    """
    unit = unit_of(watch)
    if unit is None:
        return account
    found = specs.unit_host_of(specs.lease_view(lease, still_mine=check))
    if found is None:
        raise LeaseEnded(f"The account of lease {lease.pk} on its host is gone.")
    return UnitCommand(account, found[1].transport, unit, still_mine=check)


def watch_of(job: Job) -> Watch | None:
    """Return the watch whose workload is this job, or None."""
    return Watch.objects.filter(job=job).first() if job.ends_lease else None


def has_archive(watch: Watch | None) -> bool:
    """Return whether the image of a workload is an archive that is copied to its host."""
    return unit_of(watch) is not None and bool(watch is not None and (watch.workload or {}).get(_ARCHIVE))


def copied(watch: Watch | None, host: Command) -> bool:
    """Copy the archive of a workload's image to its host. Return False if a later call has to go on.

    Raises NotStarted if this worker does not have the archive.
    """
    assert watch is not None
    assert isinstance(host, UnitCommand)
    return host.jobs.send(_archive((watch.workload or {})[_ARCHIVE]), settings.DRYDOCK.host_seconds * _COPYING)


def _archive(sha256: str) -> Path:
    folder = settings.DRYDOCK.archives
    path = None if folder is None else Path(folder, f"{sha256}.tar")
    if path is None or not path.is_file():
        raise NotStarted(
            f"The workload could not be started: the worker has no archive {sha256}.tar. Ask an operator to put it "
            "into the folder DRYDOCK_ARCHIVES of all workers."
        )
    return path
