"""Images: the newest that the config's words choose, and those that fit a name."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Image
from blueprints.ec2 import config
from blueprints.ec2.calls import Answer, Calls, filters, listed
from blueprints.ec2.readings import image_of

_DEBIAN_NAMES = {"x86_64": "amd64", "arm64": "arm64"}
_NEVER = dt.datetime.min.replace(tzinfo=dt.UTC)
OWNERS = ("self", config.AMAZON, config.DEBIAN, config.UBUNTU)
"""Whose images are looked through: ours, and those of the makers of the common systems."""


def newest(calls: Calls, region: str, wanted: Mapping[str, str], arch: str) -> Image:
    """The image that `config.Image` fields choose. Raises CloudError NOT_FOUND with what was looked for, INVALID for
    words that are not those of `config.Image`."""
    words = _words(wanted)
    if words.id:
        found = _described(calls, region, ImageIds=[words.id])
        asked = words.id
    else:
        name = words.name.replace("{arch}", _DEBIAN_NAMES.get(arch, arch))
        asked = f"named {name} of {words.owner}"
        usable = filters(name=name, architecture=arch, state="available", root_device_type="ebs")
        found = _described(calls, region, Owners=[words.owner], Filters=usable)
    fitting = [image for image in found if image.arch == arch]
    if not fitting:
        raise CloudError(Meaning.NOT_FOUND, f"There is no image {asked} for {arch} in {region}.")
    return _sorted(fitting)[0]


def fitting(calls: Calls, region: str, name: str) -> list[Image]:
    """Those of `OWNERS` whose name fits a pattern with * and ?, newest first."""
    usable = filters(name=name or "*", state="available")
    return _sorted(_described(calls, region, Owners=list(OWNERS), Filters=usable))


def described(calls: Calls, region: str, image: str) -> Answer:
    """One image as EC2 describes it. Raises CloudError NOT_FOUND."""
    for found in listed(calls, "describe_images", region, "Images", ImageIds=[image]):
        return found
    raise CloudError(Meaning.NOT_FOUND, f"There is no image {image} in {region}.")


def _described(calls: Calls, region: str, **wanted: Any) -> list[Image]:
    return [image_of(one) for one in listed(calls, "describe_images", region, "Images", **wanted)]


def _sorted(found: Iterable[Image]) -> list[Image]:
    return sorted(found, key=lambda image: (image.created_at or _NEVER, image.id), reverse=True)


def _words(wanted: Mapping[str, str]) -> config.Image:
    try:
        return config.Image.model_validate(dict(wanted))
    except ValidationError as error:
        said = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise CloudError(Meaning.INVALID, f"This chooses no image: {said}") from error
