"""The methods of erasure, best first, and which of them a disk supports.

The order follows NIST SP 800-88: purge by the disk itself before clear by writing. `docs/explanation/erasure.md` says
what each method proves.
"""

from __future__ import annotations

from drydock_agent.disks import ata, nvme

METHODS = (
    "nvme_sanitize_crypto", "nvme_sanitize_block", "nvme_format_crypto", "nvme_format",
    "ata_secure_erase_enhanced", "ata_secure_erase", "discard", "overwrite",
)  # fmt: skip
"""All methods, best first."""
READ_WHOLE = frozenset(["discard", "overwrite"])
"""Methods after which the whole disk is read, since the disk itself does not vouch for them."""
OF_CONTROLLER = frozenset(["nvme_sanitize_crypto", "nvme_sanitize_block"])
"""Methods that erase every namespace of a controller."""
PATTERNED = frozenset(["ata_secure_erase_enhanced"])
"""Methods that may leave a pattern of the manufacturer on the disk, the same everywhere, rather than zeros."""


def supported(
    space: nvme.Features | None, ident: ata.Features | None, *, discards: bool, zeroes: bool
) -> tuple[str, ...]:
    """Return the methods that a disk supports, best first.

    `discards` is whether it can discard blocks, and `zeroes` whether the kernel says that they read zero then.
    """
    reads_zero = zeroes or (space is not None and space.reads_zero) or (ident is not None and ident.reads_zero)
    there = {
        "nvme_sanitize_crypto": space is not None and space.sanitizes_crypto,
        "nvme_sanitize_block": space is not None and space.sanitizes_blocks,
        "nvme_format_crypto": space is not None and space.formats_crypto,
        "nvme_format": space is not None and space.formats,
        "ata_secure_erase_enhanced": ident is not None and ident.supported and ident.enhanced,
        "ata_secure_erase": ident is not None and ident.supported,
        "discard": discards and reads_zero,
        "overwrite": True,
    }
    return tuple(one for one in METHODS if there[one])
