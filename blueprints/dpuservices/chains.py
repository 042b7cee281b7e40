"""Which interfaces of a DPU owners may connect by chains, as the config of a blueprint says."""

from __future__ import annotations

from pydantic import Field

from blueprints.contract import Fields
from interfaces.dpu_services import ChainLimits


class ChainConfig(Fields):
    """Chains that owners may connect on their DPU."""

    vfs: int = Field(
        default=0, ge=0, le=1024,
        description="Number of VFs of each PF that owners may connect. The flavor must create them.",
    )  # fmt: skip
    network: str = Field(
        default="mybrsfc", pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        description="NetworkAttachmentDefinition in the DPU cluster for interfaces of services, which DPF installs.",
    )  # fmt: skip


def limits(config: ChainConfig, ports: int) -> ChainLimits:
    """Return what owners may connect on a card with so many network ports."""
    return ChainLimits(ports=ports, vfs=config.vfs)
