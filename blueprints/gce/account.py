"""Regions, images and quotas of one project."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from google.cloud import compute_v1

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Image, InstanceType, Location, Market, Quota
from blueprints.gce import api
from blueprints.gce.api import Calls, found
from blueprints.gce.config import Image as Wanted
from blueprints.gce.market import ARCHITECTURES, Table, country, offers

PAGE = 500
"""Maximum number of entries that Google puts on a page."""


class Account:
    """The regions, types, images and quotas that one project may use."""

    def __init__(self, calls: Calls, table: Table) -> None:
        self._calls, self._table = calls, table

    def project(self) -> Any:
        """Read the project itself, with the quotas that apply to all regions."""
        request = compute_v1.GetProjectRequest(project=self._calls.project)
        return self._calls.read(self._calls.of(compute_v1.ProjectsClient).get, request)

    def regions(self) -> list[Any]:
        """Read all regions, with one call per page."""
        request = compute_v1.ListRegionsRequest(project=self._calls.project, max_results=PAGE)
        pages = self._calls.pages(self._calls.of(compute_v1.RegionsClient).list, request)
        return [region for page in pages for region in page.items]

    def region(self, name: str) -> Any:
        """Read one region."""
        request = compute_v1.GetRegionRequest(project=self._calls.project, region=name)
        return self._calls.read(self._calls.of(compute_v1.RegionsClient).get, request)

    def locations(self) -> list[Location]:
        """Return all regions."""
        return sorted(map(location_of, self.regions()), key=lambda one: one.name)

    def types(self, location: str) -> list[InstanceType]:
        """Return the types of one region, zone by zone, or those of all regions for ""."""
        if location:
            zones = location_of(self.region(location)).zones
            machines = [one for zone in zones for one in self._machines_in(zone)]
            cards = [one for zone in zones for one in self._accelerators_in(zone)]
        else:
            machines, cards = list(self._machines()), list(self._accelerators())
        return offers(machines, cards, self._table)

    def _machines(self) -> Iterator[Any]:
        request = compute_v1.AggregatedListMachineTypesRequest(project=self._calls.project, max_results=PAGE)
        for page in self._calls.pages(self._calls.of(compute_v1.MachineTypesClient).aggregated_list, request):
            for scope in page.items.values():
                yield from scope.machine_types

    def _accelerators(self) -> Iterator[Any]:
        request = compute_v1.AggregatedListAcceleratorTypesRequest(project=self._calls.project, max_results=PAGE)
        for page in self._calls.pages(self._calls.of(compute_v1.AcceleratorTypesClient).aggregated_list, request):
            for scope in page.items.values():
                yield from scope.accelerator_types

    def _machines_in(self, zone: str) -> Iterator[Any]:
        request = compute_v1.ListMachineTypesRequest(project=self._calls.project, zone=zone, max_results=PAGE)
        for page in self._calls.pages(self._calls.of(compute_v1.MachineTypesClient).list, request):
            yield from page.items

    def _accelerators_in(self, zone: str) -> Iterator[Any]:
        request = compute_v1.ListAcceleratorTypesRequest(project=self._calls.project, zone=zone, max_results=PAGE)
        for page in self._calls.pages(self._calls.of(compute_v1.AcceleratorTypesClient).list, request):
            yield from page.items

    def quotas(self, location: str) -> list[Quota]:
        """Return the quotas of one region, or of all regions for "", always including those of the project itself."""
        regions = [self.region(location)] if location else self.regions()
        here = [quota for region in regions for quota in quotas_of(region, region.name)]
        return here + list(quotas_of(self.project(), ""))

    def image(self, wanted: Mapping[str, str], arch: str) -> Image:
        """Return the newest matching image. Raises CloudError NOT_FOUND."""
        said = dict(wanted) or Wanted().wanted()
        project, family, name = _parts(said)
        for candidate in _sisters(family, arch) if family else ("",):
            read = self._newest(project, candidate) if family else self._named(project, name)
            it = found(read)
            if it is not None and image_of(it).arch == arch:
                return image_of(it)
        text = f"{project} has no image {family or name!r} for {arch}."
        raise CloudError(Meaning.NOT_FOUND, text, provider_code="notFound")

    def _newest(self, project: str, family: str) -> Callable[[], Any]:
        request = compute_v1.GetFromFamilyImageRequest(project=project, family=family)
        return lambda: self._calls.read(self._calls.of(compute_v1.ImagesClient).get_from_family, request)

    def _named(self, project: str, name: str) -> Callable[[], Any]:
        request = compute_v1.GetImageRequest(project=project, image=name)
        return lambda: self._calls.read(self._calls.of(compute_v1.ImagesClient).get, request)

    def images(self, pattern: str) -> Sequence[Image]:
        """Return the images that match `PROJECT/PATTERN`, or a pattern in our own project, newest first."""
        project, _, glob = pattern.rpartition("/")
        words = re.escape(glob or "*").replace(r"\*", ".*").replace(r"\?", ".")
        request = compute_v1.ListImagesRequest(
            project=project or self._calls.project, filter=f'name eq "{words}"', max_results=PAGE
        )
        pages = self._calls.pages(self._calls.of(compute_v1.ImagesClient).list, request)
        every = (image_of(one) for page in pages for one in page.items if one.deprecated.state in ("", "ACTIVE"))
        fitting = [one for one in every if fnmatch.fnmatchcase(one.name, glob or "*")]
        return sorted(fitting, key=lambda one: one.created_at.timestamp() if one.created_at else 0.0, reverse=True)


def _parts(said: Mapping[str, str]) -> tuple[str, str, str]:
    """Return (project, family, name) of an image, from the config or from the link that a lease gives as `id`."""
    link = said.get("link") or said.get("id", "")
    if not link:
        return said.get("project", ""), said.get("family", ""), said.get("name", "")
    project, _, rest = link[link.find("projects/") + len("projects/") :].partition("/global/images/")
    if "projects/" not in link or not project or not rest:
        raise CloudError(Meaning.INVALID, f"{link!r} is not a valid image: use projects/PROJECT/global/images/NAME.")
    family, slash, name = rest.partition("/")
    return (project, name, "") if slash and family == "family" else (project, "", rest)


def _sisters(family: str, arch: str) -> tuple[str, ...]:
    """Return the image families to search: the given one and, for ARM, also its variant, such as debian-12-arm64."""
    return (family, f"{family.removesuffix('-amd64')}-arm64") if arch == "arm64" else (family,)


def image_of(it: Any) -> Image:
    """Convert a `compute_v1.Image` to the contract's form. Its id is the link that an order takes."""
    link = it.self_link
    return Image(
        id=link[link.find("projects/") :] if "projects/" in link else link,
        name=it.name,
        arch=ARCHITECTURES.get(it.architecture, "x86_64"),
        created_at=api.when(it.creation_timestamp),
        disk_gib=it.disk_size_gb,
    )


def location_of(it: Any) -> Location:
    """Convert a `compute_v1.Region` to the contract's form."""
    return Location(
        name=it.name,
        description=it.description,
        zones=tuple(sorted(api.last(zone) for zone in it.zones)),
        available=it.status == "UP",
        country=country(it.name),
    )


def quotas_of(it: Any, region: str) -> Iterator[Quota]:
    """Return the quotas that count instances, vCPUs and GPUs in a region, or in a project if `region` is "".

    A spot quota of 0 is omitted: until Google has granted one, spot machines count against the on-demand quota (not
    checked yet against Google's page on preemptible quotas). After that, they count against the spot quota alone.
    """
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
    """Return the metric that counts spot machines, for which `metric` counts on-demand machines."""
    return "PREEMPTIBLE_CPUS" if unit == "vcpus" else f"PREEMPTIBLE_{metric}"


ALL_FAMILIES = frozenset({"CPUS_ALL_REGIONS", "GPUS_ALL_REGIONS", "INSTANCES", "IN_USE_ADDRESSES", "PREEMPTIBLE_CPUS"})
"""Metrics of quotas that count all families together. Once Google has granted a quota PREEMPTIBLE_CPUS, that one counts
spot machines of every series."""


def _unit(metric: str) -> str:
    if metric.startswith("COMMITTED_"):
        return ""
    if metric in ("INSTANCES", "IN_USE_ADDRESSES"):
        return "instances" if metric == "INSTANCES" else "addresses"
    if "GPUS" in metric:
        return "gpus"
    return "vcpus" if metric.endswith(("CPUS", "CPUS_ALL_REGIONS")) else ""
