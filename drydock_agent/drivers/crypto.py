"""The kernel's algorithms for encryption and compression, from /proc/crypto."""

from __future__ import annotations

from collections.abc import Mapping

from drydock_agent.driver import Findings
from drydock_agent.facts import CryptoAlgorithm, Host
from drydock_agent.tree import Tree

FILE = "proc/crypto"

# Modules of engines, rather than of code that runs on the processor.
_HARDWARE = (
    "intel_qat", "qat_", "ccp", "caam", "hisi_", "chcr", "nx_crypto", "nx_compress", "mv_cesa", "marvell_cesa",
    "octeontx_cpt", "rvu_cpt", "safexcel", "crypto_safexcel", "iaa_crypto", "atmel_", "talitos", "virtio_crypto",
    "n5pf", "nitrox", "ccree", "sun8i_", "amlogic_gxl", "stm32_", "qcrypto", "zynqmp_aes",
)  # fmt: skip

_HARDWARE_DRIVERS = ("qat_", "ccp-", "caam", "hisi_", "chcr", "nx-", "mv-", "safexcel", "virtio_crypto", "iaa")


class Crypto:
    """Reports the algorithms listed in /proc/crypto."""

    name = "crypto"
    classes: tuple[str, ...] = ()
    paths = (FILE,)
    tools: Mapping[str, tuple[str, ...]] = {}

    def read(self, tree: Tree) -> Findings:
        """Return the algorithms. Skips incomplete entries with a warning."""
        text = tree.read(FILE)
        if not text:
            return Findings()
        found: dict[tuple[str, str, str], CryptoAlgorithm] = {}
        odd = 0
        for block in text.split("\n\n"):
            one = _algorithm(block)
            if one is None:
                odd += 1
            else:
                found[one.driver, one.name, one.type] = one
        if odd:
            tree.warn(FILE, f"{odd} entries without a name, driver or type were skipped.")
        return Findings(host=Host(crypto=tuple(found[key] for key in sorted(found))))


def _algorithm(block: str) -> CryptoAlgorithm | None:
    pairs = [line.partition(":") for line in block.splitlines() if ":" in line]
    fields: dict[str, str] = {}
    for key, _, value in pairs:
        if key.strip() in fields:
            return None  # two entries that ran together
        fields[key.strip()] = value.strip()
    name, driver, kind = (fields.get(key, "") for key in ("name", "driver", "type"))
    if not (name and driver and kind):
        return None
    module, priority = fields.get("module", ""), fields.get("priority", "")
    return CryptoAlgorithm(
        driver=driver, name=name, module=module, type=kind, priority=int(priority) if priority.isdecimal() else None,
        asynchronous=fields.get("async") == "yes", internal=fields.get("internal") == "yes",
        passed=fields.get("selftest") == "passed",
        hardware=module.startswith(_HARDWARE) or driver.startswith(_HARDWARE_DRIVERS),
    )  # fmt: skip
