"""The objects of DPF for images: a BFB or, for BlueField 4, a BlueFieldSoftware. Pure.

Which of them an address is for follows from its file. DPF 26.4 has the kind BlueFieldSoftware, but no field by which a
DPUSet refers to one; later versions have it (doca-platform, `config/provisioning/crd/bases`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from blueprints.answers import Json
from blueprints.kube import Dialect

BFB, SOFTWARE = "BFB", "BlueFieldSoftware"
KINDS = (BFB, SOFTWARE)
_OF_FILE = {".bfb": BFB, ".iso": SOFTWARE}
_FIELDS = {BFB: "bfb", SOFTWARE: "blueFieldSoftware"}
"""Kind -> the field of a DPU, DPUSet or DPUDeployment that refers to its object."""
FIRMWARE = {
    "firmware": "pldmFwBundle", "platform_firmware": "platformPldmFwBundle", "nic_firmware": "nicFw",
}  # fmt: skip
"""Attribute of an image -> the field of a BlueFieldSoftware with the address of that firmware."""


def kind_of(url: str) -> str:
    """Return the kind of the object for an image. Raises ValueError for an address that no kind accepts."""
    kind = _kind(url)
    if kind is None:
        raise ValueError("Must end in .bfb or, for BlueField 4, in .iso, because DPF accepts no other file.")
    return kind


def _kind(url: str) -> str | None:
    try:
        path = urlsplit(url).path
    except ValueError:
        return None
    return next((kind for end, kind in _OF_FILE.items() if path.endswith(end)), None)


def check_url(url: str) -> str:
    """Return the address of an image. Raises ValueError for one that DPF cannot install."""
    kind_of(check_address(url))
    return url


def check_address(url: str) -> str:
    """Return an address. Raises ValueError for one from which DPF cannot download."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError("Must begin with http:// or https://, without a user name.")
    return url


@dataclass(frozen=True)
class Image:
    """The object of an image, as the objects that use it refer to it."""

    kind: str
    name: str

    @classmethod
    def of(cls, attributes: Mapping[str, Any], facts: Mapping[str, Any]) -> Self:
        """Return the object of a resource of type dpu_image."""
        return cls(kind_of(attributes["url"]), facts["name"])

    @classmethod
    def named_in(cls, spec: Mapping[str, Any]) -> Self | None:
        """Return the image of a DPU's or DPUDeployment's spec, or of a DPUSet's template; None if it names none."""
        for kind, field in _FIELDS.items():
            given = spec.get(field)
            name = given.get("name") if isinstance(given, Mapping) else given
            if name:
                return cls(kind, str(name))
        return None

    @property
    def field(self) -> str:
        """The field that refers to it."""
        return _FIELDS[self.kind]


def manifest(dialect: Dialect, name: str, namespace: str, attributes: Mapping[str, Any]) -> Json:
    """Return the object of an image that DPF downloads once."""
    kind = kind_of(attributes["url"])
    if kind == BFB:
        spec = {"url": attributes["url"], "fileName": f"{name}.bfb"}
    else:
        given = {field: attributes[key] for key, field in FIRMWARE.items() if attributes.get(key)}
        spec = {"osIso": attributes["url"], **given}
    return dialect.type(kind).manifest(name, namespace, spec=spec)


def used_by(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the kinds of the images in a config of kind dpf or dpf_image, as given or as read; BFB if it has none."""
    deployment, listed = config.get("deployment"), config.get("images") or ()
    urls = [config.get("image"), config.get("park_image")]
    urls += [deployment.get("image")] if isinstance(deployment, Mapping) else []
    urls += [one.get("url") if isinstance(one, Mapping) else one.url for one in listed]
    found = {_kind(url) for url in urls if isinstance(url, str)}
    return tuple(kind for kind in KINDS if kind in found) or (BFB,)
