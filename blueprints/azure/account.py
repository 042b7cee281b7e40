"""Locations, sizes, images and quotas of one subscription."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blueprints.azure import market
from blueprints.azure.api import Connection
from blueprints.azure.config import Image as Wanted
from blueprints.azure.errors import found, translated
from blueprints.azure.market import Size, table
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Image, Location, Market, Quota

_COUNTRIES = {
    "australia": "AU", "austria": "AT", "belgium": "BE", "brazil": "BR", "canada": "CA", "chile": "CL",
    "denmark": "DK", "france": "FR", "germany": "DE", "hong kong": "HK", "india": "IN", "indonesia": "ID",
    "ireland": "IE", "israel": "IL", "italy": "IT", "japan": "JP", "korea": "KR", "malaysia": "MY", "mexico": "MX",
    "netherlands": "NL", "new zealand": "NZ", "norway": "NO", "poland": "PL", "qatar": "QA", "singapore": "SG",
    "south africa": "ZA", "spain": "ES", "sweden": "SE", "switzerland": "CH", "taiwan": "TW", "uae": "AE",
    "united arab emirates": "AE", "united kingdom": "GB", "united states": "US",
}  # fmt: skip
"""Maps the geography or the physical location of a region, as "Subscriptions - List Locations" reports it, to a
country."""


def location_of(found: Mapping[str, Any]) -> Location | None:
    """Return one of the subscription's locations, or None for entries that are not regions (such as `global`)."""
    about: Mapping[str, Any] = found.get("metadata") or {}
    if about.get("regionType", "Physical") != "Physical":
        return None
    zones = {str(one.get("logicalZone")) for one in found.get("availabilityZoneMappings") or ()}
    places = (str(about.get(name) or "").lower() for name in ("geography", "physicalLocation"))
    return Location(
        name=str(found["name"]).lower(),
        description=str(found.get("displayName") or ""),
        zones=tuple(sorted(zones)),
        country=next((_COUNTRIES[place] for place in places if place in _COUNTRIES), ""),
    )


LOCATIONS_VERSION = "2022-12-01"
KEEP = 3600.0
"""Seconds for which a size's capabilities are cached when a machine is created. Offers are always read anew."""


@dataclass(frozen=True, kw_only=True)
class Features:
    """The features of a marketplace image ("Virtual Machine Images - Get", features and hyperVGeneration)."""

    security: str = ""
    """The image's security type, such as `TrustedLaunchSupported`; empty if the image does not state it."""
    generation: str = ""
    """The generation of machines that boot the image: V1 or V2; empty if unknown."""
    controllers: frozenset[str] = frozenset({"SCSI"})
    """Disk controllers that the image supports; an image that does not state any supports only SCSI."""


class Account:
    """The locations, sizes, images and quotas of one subscription. Lists take one call per page."""

    def __init__(self, connection: Connection, prices: str) -> None:
        self._connection = connection
        self._prices = prices
        self._known: dict[str, tuple[float, dict[str, Size]]] = {}
        self._features: dict[str, Features] = {}

    def locations(self) -> list[Location]:
        """Return the regions of the subscription, by name."""
        path = f"/subscriptions/{self._connection.subscription}/locations"
        answer, _ = self._connection.ask("GET", path, version=LOCATIONS_VERSION, doing="list the locations")
        read = [location_of(one) for one in answer.get("value") or ()]
        return sorted((one for one in read if one is not None), key=lambda one: one.name)

    def sizes(self, location: str) -> list[Size]:
        """Return the sizes in a location, or those in all locations (from a single listing) if `location` is empty."""
        chosen = {"filter": f"location eq '{location}'"} if location else {}
        with translated("list the sizes"):
            skus = [sku.as_dict() for sku in self._connection.compute.resource_skus.list(**chosen)]
        read = list(market.sizes(skus, table(self._prices)))
        if location:
            read = [one for one in read if one.type.location == location]
        for place in {one.type.location for one in read}:
            known = {one.type.name: one for one in read if one.type.location == place}
            self._known[place] = (time.monotonic(), known)
        return read

    def size(self, location: str, name: str) -> Size:
        """Return one size. Raises CloudError NOT_OFFERED."""
        at, known = self._known.get(location, (0.0, {}))
        if name not in known or time.monotonic() - at > KEEP:
            self.sizes(location)
            _, known = self._known.get(location, (0.0, {}))
        if name not in known:
            raise CloudError(Meaning.NOT_OFFERED, f"Azure does not offer {name} in {location} to this subscription.")
        return known[name]

    def quotas(self, location: str) -> list[Quota]:
        """Return the quotas of a location: vCPUs in total, by family and of spot machines; machines; addresses."""
        with translated(f"read the usage in {location}"):
            usages = [one.as_dict() for one in self._connection.compute.usage.list(location)]
        with translated(f"read the usage of networks in {location}"):
            usages += [one.as_dict() for one in self._connection.network.usages.list(location)]
        return [quota for one in usages if (quota := _quota(one, location))]

    def image(self, location: str, wanted: Mapping[str, str], arch: str) -> Image:
        """Return the newest version of the selected image. Raises CloudError NOT_FOUND."""
        try:
            words = Wanted.model_validate(dict(wanted))
        except ValueError as error:
            raise CloudError(Meaning.INVALID, f"The image selectors are invalid: {error}") from None
        if words.id.startswith("/"):
            return Image(id=words.id, name=words.id.rsplit("/", 1)[-1], arch=arch)
        chosen = words.id or ":".join((words.publisher, words.offer, words.sku_for(arch), words.version))
        publisher, offer, sku, version = chosen.split(":")
        if version == "latest":
            version = self._newest(location, publisher, offer, sku)
        image = f"{publisher}:{offer}:{sku}:{version}"
        self.features(location, image)
        return Image(id=image, name=f"{offer} {sku} {version}", arch=arch)

    def images(self, location: str, pattern: str) -> list[Image]:
        """Return the matching images, newest first.

        PUBLISHER:OFFER:SKU (SKU may have * and ?) selects versions in the marketplace; any other pattern selects the
        resource group's own managed images by name.
        """
        if pattern.count(":") == 2:
            publisher, offer, sku = pattern.split(":")
            return self._published(location, publisher, offer, sku)
        with translated("list the images"):
            own = [
                one.as_dict() for one in self._connection.compute.images.list_by_resource_group(self._connection.group)
            ]
        fits = [one for one in own if fnmatch.fnmatch(one["name"], pattern or "*") and _in(one, location)]
        return [
            Image(id=one["id"], name=one["name"]) for one in sorted(fits, key=lambda one: one["name"], reverse=True)
        ]

    def features(self, location: str, image: str) -> Features | None:
        """Return the features of a marketplace image, which are read once, or None for an image of your own."""
        if ":" not in image:
            return None
        if image not in self._features:
            words = image_reference(image)
            about = found(f"read the image {image}", lambda: self._version(location, words))
            if about is None:
                raise CloudError(Meaning.NOT_FOUND, f"{location} has no image {image}.")
            self._features[image] = about
        return self._features[image]

    def _version(self, location: str, words: Mapping[str, str]) -> Features:
        version = words["version"]
        if version == "latest":
            version = self._newest(location, words["publisher"], words["offer"], words["sku"])
        about = self._connection.compute.virtual_machine_images.get(
            location, words["publisher"], words["offer"], words["sku"], version
        ).as_dict()
        properties: Mapping[str, Any] = about.get("properties") or {}
        listed = {str(one.get("name")): str(one.get("value")) for one in properties.get("features") or ()}
        return Features(
            security=listed.get("SecurityType", ""),
            generation=str(properties.get("hyperVGeneration") or ""),
            controllers=frozenset(market.words(listed.get("DiskControllerTypes", "SCSI"))),
        )

    def _newest(self, location: str, publisher: str, offer: str, sku: str) -> str:
        listed = self._versions(location, publisher, offer, sku)
        if not listed:
            raise CloudError(Meaning.NOT_FOUND, f"{location} has no image {publisher}:{offer}:{sku}.")
        return listed[0]

    def _versions(self, location: str, publisher: str, offer: str, sku: str) -> list[str]:
        versions = self._connection.compute.virtual_machine_images
        listed = found(
            f"list the versions of {publisher}:{offer}:{sku}",
            lambda: [one.as_dict()["name"] for one in versions.list(location, publisher, offer, sku)],
        )
        return sorted(listed or (), key=_by_number, reverse=True)

    def _published(self, location: str, publisher: str, offer: str, sku: str) -> list[Image]:
        listing = self._connection.compute.virtual_machine_images.list_skus
        skus = found(
            f"list the skus of {publisher}:{offer}",
            lambda: [one.as_dict()["name"] for one in listing(location, publisher, offer)],
        )
        read = [
            (version, one)
            for one in skus or ()
            if fnmatch.fnmatch(one, sku)
            for version in self._versions(location, publisher, offer, one)
        ]
        read.sort(key=lambda pair: (_by_number(pair[0]), pair[1]), reverse=True)
        return [Image(id=f"{publisher}:{offer}:{one}:{v}", name=f"{offer} {one} {v}") for v, one in read]


def _quota(usage: Mapping[str, Any], location: str) -> Quota | None:
    """Convert an entry of the usage API to a quota, or None if it is not relevant here.

    A spot machine counts for lowPriorityCores only, not for its family (learn.microsoft.com, "Check vCPU quotas").
    """
    about = usage.get("name") or {}
    code, name = str(about.get("value") or ""), str(about.get("localizedValue") or "")
    limit, used = float(usage.get("limit") or 0), float(usage.get("currentValue") or 0)
    known: dict[str, tuple[str, Market | None]] = {
        "cores": ("vcpus", Market.ON_DEMAND),
        "lowprioritycores": ("vcpus", Market.SPOT),
        "virtualmachines": ("instances", None),
        "publicipaddresses": ("addresses", None),
        "standardskupublicipaddresses": ("addresses", None),
    }
    family = code.lower() if code.lower().endswith("family") else ""
    unit, market = ("vcpus", Market.ON_DEMAND) if family else known.get(code.lower(), ("", None))
    if not unit:
        return None
    return Quota(name=name or code, location=location, limit=limit, used=used, unit=unit, family=family, market=market)


def _by_number(version: str) -> tuple[int, ...]:
    return tuple(int(word) if word.isdigit() else 0 for word in version.split("."))


def _in(found: Mapping[str, Any], location: str) -> bool:
    return not location or str(found.get("location") or "").lower() == location


def image_reference(image: str) -> dict[str, str]:
    """Return an image's id as an imageReference. Raises CloudError INVALID."""
    if image.lower().startswith("/communitygalleries/"):
        return {"communityGalleryImageId": image}
    if image.lower().startswith("/sharedgalleries/"):
        return {"sharedGalleryImageId": image}
    if image.startswith("/"):
        return {"id": image}
    words = image.split(":")
    if len(words) != 4:
        raise CloudError(
            Meaning.INVALID, f"{image!r} is not a valid image: use PUBLISHER:OFFER:SKU:VERSION, or a resource id."
        )
    return dict(zip(("publisher", "offer", "sku", "version"), words, strict=True))
