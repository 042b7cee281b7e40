"""Small images of media that machines read at boot: settings for the ramdisk, and seeds for cloud-init."""

from __future__ import annotations

import io
from collections.abc import Mapping

LARGEST = 4 << 20
"""Maximum size in bytes of the files of a medium together."""


def iso_image(label: str, files: Mapping[str, bytes]) -> bytes:
    """Return an ISO 9660 image with these files at its top, by name, with Joliet and Rock Ridge.

    The same files give an image of the same size that differs in times only. Raises ValueError if they are too large.
    """
    # Not at the top: only what makes media needs the library.
    import pycdlib

    if sum(map(len, files.values())) > LARGEST:
        raise ValueError(f"the files of a medium have more than {LARGEST} bytes")
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=label)
    try:
        for number, (name, content) in enumerate(sorted(files.items())):
            iso.add_fp(
                io.BytesIO(content), len(content), f"/FILE{number}.;1", rr_name=name, joliet_path=f"/{name}"
            )  # fmt: skip
        image = io.BytesIO()
        iso.write_fp(image)
        return image.getvalue()
    finally:
        iso.close()
