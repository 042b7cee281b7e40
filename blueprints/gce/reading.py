"""What Compute Engine answers, as our values: instances, images, regions, quotas."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

from blueprints.cloud.values import Image, Instance, Lifecycle, Location, Market, Quota, Remnant
from blueprints.gce import labels
from blueprints.gce.series import country

STATES = {
    "PROVISIONING": Lifecycle.PENDING,
    "STAGING": Lifecycle.PENDING,
    "PENDING": Lifecycle.PENDING,
    "REPAIRING": Lifecycle.PENDING,
    "RUNNING": Lifecycle.RUNNING,
    "PENDING_STOP": Lifecycle.STOPPING,
    "STOPPING": Lifecycle.STOPPING,
    "STOPPED": Lifecycle.STOPPED,
    "TERMINATED": Lifecycle.STOPPED,
    "SUSPENDING": Lifecycle.SUSPENDING,
    "SUSPENDED": Lifecycle.SUSPENDED,
    "DEPROVISIONING": Lifecycle.TERMINATING,
}
"""Google calls a stopped instance TERMINATED; a deleted one is not there any more. One that is being deleted is
STOPPING as one that is being stopped. Source: docs.cloud.google.com/compute/docs/instances/instance-lifecycle."""
ARCHITECTURES = {"ARM64": "arm64", "X86_64": "x86_64"}


LEAVING = "Compute Engine is stopping it, as it does up to 30 seconds before it takes a spot machine back."


def last(link: str) -> str:
    """The name at the end of a link."""
    return link.rpartition("/")[2]


def region_of(zone: str) -> str:
    """`us-central1` of us-central1-a."""
    return zone.rpartition("-")[0]


def when(text: str) -> dt.datetime | None:
    """An RFC 3339 time; None where there is none."""
    return dt.datetime.fromisoformat(text) if text else None


def instance(it: Any) -> Instance:
    """One `compute_v1.Instance`."""
    zone = last(it.zone)
    card = next(iter(it.network_interfaces), None)
    outside = next(iter(card.access_configs), None) if card else None
    return Instance(
        id=str(it.id),
        key=it.name,
        state=STATES.get(it.status, Lifecycle.PENDING),
        location=region_of(zone),
        zone=zone,
        type=type_name(it),
        market=Market.SPOT if it.scheduling.provisioning_model == "SPOT" else Market.ON_DEMAND,
        public_address=outside.nat_i_p if outside else "",
        private_address=card.network_i_p if card else "",
        tags=tags(it),
        created_at=when(it.creation_timestamp),
        reason=it.status_message,
        leaving=LEAVING if it.scheduling.provisioning_model == "SPOT" and it.status == "STOPPING" else "",
    )


def lone_disk(it: Any) -> Remnant:
    """One `compute_v1.Disk`, which bears its instance's name. Of the tags it has those that are labels."""
    zone = last(it.zone)
    return Remnant(
        what="volume", id=it.name, key=it.name, location=region_of(zone), zone=zone, tags=dict(it.labels),
        created_at=when(it.creation_timestamp),
    )  # fmt: skip


def type_name(it: Any) -> str:
    """The machine type with what is attached to an N1, as `Gce.types` names them."""
    machine = last(it.machine_type)
    cards = next(iter(it.guest_accelerators), None) if machine.startswith(("n1-", "custom-")) else None
    return f"{machine}+{last(cards.accelerator_type)}:{cards.accelerator_count}" if cards else machine


def tags(it: Any) -> dict[str, str]:
    """Labels, and the tags that are kept in the metadata."""
    rest = next((item.value for item in it.metadata.items if item.key == labels.REST), "")
    return labels.tags(dict(it.labels), rest)


def image(it: Any) -> Image:
    """One `compute_v1.Image`; its id is the link that an order takes."""
    link = it.self_link
    return Image(
        id=link[link.find("projects/") :] if "projects/" in link else link,
        name=it.name,
        arch=ARCHITECTURES.get(it.architecture, "x86_64"),
        created_at=when(it.creation_timestamp),
        disk_gib=it.disk_size_gb,
    )


def location(it: Any) -> Location:
    """One `compute_v1.Region`."""
    return Location(
        name=it.name,
        description=it.description,
        zones=tuple(sorted(last(zone) for zone in it.zones)),
        available=it.status == "UP",
        country=country(it.name),
    )


def quotas(it: Any, region: str) -> Iterator[Quota]:
    """What counts instances, vCPUs and GPUs in `compute_v1.Region.quotas`, or in a project's where region is "".

    A quota for spot of 0 is left out: as long as Google has granted none, spot counts as on demand does
    (not checked yet against Google's page on preemptible quotas). Once it has, spot counts there alone."""
    granted = {str(one.metric) for one in it.quotas if str(one.metric).startswith("PREEMPTIBLE_") and one.limit > 0}
    for one in it.quotas:
        metric = str(one.metric)
        spot = metric.startswith("PREEMPTIBLE_")
        plain = metric.removeprefix("PREEMPTIBLE_")
        unit = _unit(plain)
        if unit and not (spot and metric not in granted):
            yield Quota(
                name=metric,
                location=region,
                limit=one.limit,
                used=one.usage,
                unit=unit,
                family="" if metric in ALL_FAMILIES else plain,
                market=Market.SPOT if spot else Market.ON_DEMAND if _of_spot(metric, unit) in granted else None,
            )


def _of_spot(metric: str, unit: str) -> str:
    """The metric by which spot is counted instead of by this one."""
    return "PREEMPTIBLE_CPUS" if unit == "vcpus" else f"PREEMPTIBLE_{metric}"


ALL_FAMILIES = frozenset({"CPUS_ALL_REGIONS", "GPUS_ALL_REGIONS", "INSTANCES", "IN_USE_ADDRESSES", "PREEMPTIBLE_CPUS"})
"""They count across families. PREEMPTIBLE_CPUS holds for spot of every series, once Google has granted any of it."""


def _unit(metric: str) -> str:
    if metric.startswith("COMMITTED_"):
        return ""
    if metric in ("INSTANCES", "IN_USE_ADDRESSES"):
        return "instances" if metric == "INSTANCES" else "addresses"
    if "GPUS" in metric:
        return "gpus"
    return "vcpus" if metric.endswith(("CPUS", "CPUS_ALL_REGIONS")) else ""
