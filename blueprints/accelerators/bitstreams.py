"""FPGA images: how a blueprint names them, which devices they fit, and what their files say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from blueprints.contract import Fields
from drydock_agent import Device

_NAME = re.compile(r"\A[a-z0-9][a-z0-9._-]{0,62}\Z")
_PATH = re.compile(r"\A/[^\0\n]{1,1000}\Z")
_URL = re.compile(r"\Ahttps?://[^\s\"'\\^`{|}<>]{1,1000}\Z")

_GBS = b"XeonFPGA\xb7GBSv001"
"""The beginning of an accelerator function file of OPAE. The length of its metadata follows, and then the metadata."""
_LONGEST_METADATA = 1 << 20


def _id(value: Any) -> Any:
    return re.sub(r"[\s-]", "", value).lower().removeprefix("0x") if isinstance(value, str) else value


def _lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


Id = Annotated[str, BeforeValidator(_id), Field(pattern="^[0-9a-f]{32}$")]
"""A UUID as sysfs writes it: 32 hexadecimal digits."""


class Image(Fields):
    """An FPGA image of a blueprint."""

    path: str = Field(default="", description="File with the image on the hosts.")
    url: str = Field(default="", description="Address from which the hosts download the image.")
    sha256: Annotated[str, BeforeValidator(_lower)] = Field(
        pattern="^[0-9a-f]{64}$", description="SHA-256 of the file."
    )
    interface_id: Id = Field(description="Interface id (compat_id) of the regions that the image is made for.")
    afu_id: Annotated[str, BeforeValidator(_id)] = Field(
        default="", pattern="^([0-9a-f]{32})?$",
        description="Id by which the FPGA reports the image (afu_id). By default, the one in the file's metadata.",
    )  # fmt: skip
    blank: bool = Field(
        default=False, description="Whether this is the image that FPGAs of its interface id have between leases."
    )

    @model_validator(mode="after")
    def _one_place(self) -> Image:
        if bool(self.path) == bool(self.url):
            raise ValueError("an image needs either path or url")
        if self.path and not _PATH.match(self.path):
            raise ValueError("path must be an absolute path")
        if self.url and not _URL.match(self.url):
            raise ValueError("url must begin with http:// or https://")
        return self

    @property
    def place(self) -> str:
        """The file or the address of the image."""
        return self.path or self.url


def checked(images: Mapping[str, Image]) -> Mapping[str, Image]:
    """Return the images of a blueprint. Raises ValueError if names are malformed or a blank image is missing."""
    for name in images:
        if not _NAME.match(name):
            raise ValueError(f"{name!r:.70}: names of images have lower-case letters, digits, dots, hyphens and _ only")
    for id in sorted({one.interface_id for one in images.values()}):
        blanks = [name for name, one in images.items() if one.blank and one.interface_id == id]
        if len(blanks) != 1:
            found = f"there are {len(blanks)}: {', '.join(blanks)}" if blanks else "there is none"
            raise ValueError(f"interface id {id} needs exactly one image with blank: true, but {found}")
    return images


def interface_ids(device: Device) -> tuple[str, ...]:
    """Return the interface ids of the regions of an FPGA."""
    return tuple(_id(one) for one in _texts(device, "interface_ids"))


def afu_ids(device: Device) -> tuple[str, ...]:
    """Return the ids by which an FPGA reports what it has been programmed with."""
    return tuple(_id(one) for one in _texts(device, "afu_ids"))


def fitting(images: Mapping[str, Image], device: Device) -> Iterator[str]:
    """Yield the names of the images that leases of a device can ask for."""
    ids = interface_ids(device) if device.device_class == "fpga" and not why_not(device) else ()
    return (name for name, one in images.items() if one.interface_id in ids and not one.blank)


def blank_of(images: Mapping[str, Image], device: Device) -> str:
    """Return the name of the blank image of a device, or an empty string if the blueprint has none."""
    ids = interface_ids(device)
    return next((name for name, one in images.items() if one.blank and one.interface_id in ids), "")


def why_not(device: Device) -> str:
    """Return why Drydock cannot program a device, or an empty string.

    The ioctl of DFL devices, which OPAE's fpgaconf uses, is the only way to program that the kernel offers to programs,
    that checks the interface id, and whose result can be read back (ADR 26).
    """
    if device.device_class != "fpga":
        return f"{device.id} is not an FPGA."
    if device.vendor_id == "10ee":
        return (
            f"{device.id} is an FPGA of AMD (Xilinx), which Drydock does not program: XRT reports neither the "
            "interface id of an image before it is loaded, nor a blank state."
        )
    if not interface_ids(device):
        return (
            f"The FPGA regions of {device.id} state no interface id (compat_id), so Drydock cannot find out which "
            "images fit, and does not program it."
        )
    if not device.driver.startswith("dfl"):
        driver = device.driver or "no driver"
        return f"{device.id} is bound to {driver} instead of dfl-pci, so fpgaconf cannot program it."
    return ""


class BadImage(ValueError):
    """The file of an image is malformed."""


def metadata(head: bytes) -> tuple[str, str]:
    """Return the interface id and the AFU id in an accelerator function file, from its beginning; empty if it has none.

    Source: the format that OPAE's packager writes: a GUID, the length of the metadata as 32 bits in little-endian
    order, and the metadata as JSON. Raises BadImage if the metadata is malformed.
    """
    if not head.startswith(_GBS):
        return "", ""
    begin = len(_GBS) + 4
    length = int.from_bytes(head[len(_GBS) : begin], "little")
    if not 0 < length <= min(_LONGEST_METADATA, len(head) - begin):
        raise BadImage(f"its metadata has {length} bytes")
    try:
        image = json.loads(head[begin : begin + length])["afu-image"]
        clusters = image.get("accelerator-clusters") or [{}]
        return _id(str(image["interface-uuid"])), _id(str(clusters[0].get("accelerator-type-uuid", "")))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise BadImage(f"its metadata is malformed ({type(error).__name__})") from None


def _texts(device: Device, name: str) -> tuple[str, ...]:
    value = device.attributes.get(name)
    return value if isinstance(value, tuple) else ()
