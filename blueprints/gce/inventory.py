"""What there is to be had: regions, types, images, quotas."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from google.cloud import compute_v1

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Image, InstanceType, Location, Quota
from blueprints.gce import reading
from blueprints.gce.calls import Calls, found
from blueprints.gce.config import Image as Wanted
from blueprints.gce.offers import offers
from blueprints.gce.prices import Table

PAGE = 500
"""The most entries that Google puts on a page."""


class Inventory:
    """Reads what one project may use."""

    def __init__(self, calls: Calls, table: Table) -> None:
        self._calls, self._table = calls, table

    def project(self) -> Any:
        """The project itself, with the quotas that hold for all regions."""
        request = compute_v1.GetProjectRequest(project=self._calls.project)
        return self._calls.read(self._calls.of(compute_v1.ProjectsClient).get, request)

    def regions(self) -> list[Any]:
        """One call (a page) for all of them."""
        request = compute_v1.ListRegionsRequest(project=self._calls.project, max_results=PAGE)
        pages = self._calls.pages(self._calls.of(compute_v1.RegionsClient).list, request)
        return [region for page in pages for region in page.items]

    def region(self, name: str) -> Any:
        """One region."""
        request = compute_v1.GetRegionRequest(project=self._calls.project, region=name)
        return self._calls.read(self._calls.of(compute_v1.RegionsClient).get, request)

    def locations(self) -> list[Location]:
        """All regions."""
        return sorted(map(reading.location, self.regions()), key=lambda one: one.name)

    def types(self, location: str) -> list[InstanceType]:
        """Of all regions with "", else of one, zone by zone."""
        if location:
            zones = reading.location(self.region(location)).zones
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
        """Those of one region or of all with "", and in either case the project's own."""
        regions = [self.region(location)] if location else self.regions()
        here = [quota for region in regions for quota in reading.quotas(region, region.name)]
        return here + list(reading.quotas(self.project(), ""))

    def image(self, wanted: Mapping[str, str], arch: str) -> Image:
        """The newest that fits. Raises NOT_FOUND."""
        said = dict(wanted) or Wanted().wanted()
        project, family, name = _parts(said)
        for candidate in _sisters(family, arch) if family else ("",):
            read = self._newest(project, candidate) if family else self._named(project, name)
            it = found(read)
            if it is not None and reading.image(it).arch == arch:
                return reading.image(it)
        text = f"There is no image {family or name!r} for {arch} in {project}."
        raise CloudError(Meaning.NOT_FOUND, text, provider_code="notFound")

    def _newest(self, project: str, family: str) -> Callable[[], Any]:
        request = compute_v1.GetFromFamilyImageRequest(project=project, family=family)
        return lambda: self._calls.read(self._calls.of(compute_v1.ImagesClient).get_from_family, request)

    def _named(self, project: str, name: str) -> Callable[[], Any]:
        request = compute_v1.GetImageRequest(project=project, image=name)
        return lambda: self._calls.read(self._calls.of(compute_v1.ImagesClient).get, request)

    def images(self, pattern: str) -> Sequence[Image]:
        """Those of `PROJECT/PATTERN`, or of our own project without a slash, newest first."""
        project, _, glob = pattern.rpartition("/")
        words = re.escape(glob or "*").replace(r"\*", ".*").replace(r"\?", ".")
        request = compute_v1.ListImagesRequest(
            project=project or self._calls.project, filter=f'name eq "{words}"', max_results=PAGE
        )
        pages = self._calls.pages(self._calls.of(compute_v1.ImagesClient).list, request)
        every = (reading.image(one) for page in pages for one in page.items if one.deprecated.state in ("", "ACTIVE"))
        fitting = [one for one in every if fnmatch.fnmatchcase(one.name, glob or "*")]
        return sorted(fitting, key=lambda one: one.created_at.timestamp() if one.created_at else 0.0, reverse=True)


def _parts(said: Mapping[str, str]) -> tuple[str, str, str]:
    """(project, family, name) of what the config says, or a lease by an image's `id`, which is its link too."""
    link = said.get("link") or said.get("id", "")
    if not link:
        return said.get("project", ""), said.get("family", ""), said.get("name", "")
    project, _, rest = link[link.find("projects/") + len("projects/") :].partition("/global/images/")
    if "projects/" not in link or not project or not rest:
        raise CloudError(Meaning.INVALID, f"{link!r} is not an image: projects/PROJECT/global/images/NAME is.")
    family, slash, name = rest.partition("/")
    return (project, name, "") if slash and family == "family" else (project, "", rest)


def _sisters(family: str, arch: str) -> tuple[str, ...]:
    """Debian, Ubuntu and others have a family of its own for ARM: debian-12-arm64, ubuntu-2404-lts-arm64."""
    return (family, f"{family.removesuffix('-amd64')}-arm64") if arch == "arm64" else (family,)
