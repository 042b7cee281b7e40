"""The seed of a deployed system: an ISO image for cloud-init's data source NoCloud."""

from __future__ import annotations

from drydock_agent.disks.errors import DiskError

MOST_BYTES = 16 << 20
_VOLUME = 0x8000
"""Where an ISO 9660 image has its primary volume descriptor."""


def check_seed(content: bytes) -> None:
    """Raise DiskError unless this is an ISO image with the label that cloud-init looks for."""
    if len(content) > MOST_BYTES:
        raise DiskError("bad_request", f"seed: the image has more than {MOST_BYTES >> 20} MiB.")
    descriptor = content[_VOLUME : _VOLUME + 2048]
    if descriptor[:7] != b"\x01CD001\x01":
        raise DiskError("bad_request", "seed: the content is not an ISO 9660 image.")
    label = descriptor[40:72].decode("ascii", "replace").strip()
    if label.lower() != "cidata":
        raise DiskError("bad_request", f"seed: the label of the image is {label!r}; cloud-init looks for cidata.")
