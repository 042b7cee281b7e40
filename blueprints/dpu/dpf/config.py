"""Config of blueprints of kind dpf."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, JsonValue, ValidationInfo, field_validator, model_validator

from blueprints.contract import Fields
from blueprints.dpf import Server
from blueprints.dpf.deployments import MOST_NAMESPACE
from blueprints.dpf.images import check_url
from blueprints.dpf.phases import LIMIT, LIMITS
from blueprints.dpu.dpf.deployment import DeploymentConfig
from blueprints.dpuservices import (
    ChainConfig,
    ChartConfig,
    Ranges,
    VolumeConfig,
    VpcConfig,
    allowed,
    networks_need_chains,
)
from drydock.core.errors import InvalidRequest
from interfaces.dpu_services.credentials import LONGEST, SHORTEST
from interfaces.dpu_services.service import check_allowed

_HUGEPAGES = re.compile(r"\Ahugepages=(\d{1,9})\Z")
_SIZE = re.compile(r"\Ahugepagesz=(\d{1,6})([KMG])\Z", re.IGNORECASE)
_UNIT = {"K": 1 / (1 << 20), "M": 1 / 1024, "G": 1.0}
_DEFAULT_PAGE_GIB = 2 / 1024


class CredentialConfig(Fields):
    """Credentials for the DPU cluster, which owners of leases may request."""

    namespace: str = Field(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        description="Namespace set aside for the Secrets with credentials, and of the same name in the DPU clusters, "
        "for their accounts. Nothing else may be in either.",
    )
    longest: int = Field(
        default=3600, ge=SHORTEST, le=LONGEST, description="Seconds for which a credential may be valid at most."
    )


class Config(Server):
    """How DPF installs DPUs."""

    image: str = Field(
        default="",
        max_length=2000,
        description="Address of the image, which ends in .bfb or, for BlueField 4, in .iso; a blueprint of kind "
        "dpf_image must have it. Required without `deployment`.",
    )
    doca: str = Field(default="", max_length=63, description="Version of DOCA in the image.")
    flavor: str | Mapping[str, JsonValue] = Field(
        default="",
        description="Name of an existing DPUFlavor, or the spec of one that is created for each DPU. Required without "
        "`deployment`.",
    )
    deployment: DeploymentConfig | None = Field(
        default=None,
        description="What every DPU has: image, flavor, services and chains, as a DPUDeployment of its own. Instead "
        "of `image` and `flavor`.",
    )
    card: Mapping[str, JsonValue] = Field(default={}, description="Requirements for the card, such as its model.")
    cluster: Mapping[str, JsonValue] = Field(default={}, description="Requirements for the DPU cluster.")
    mode: Literal["dpu", "zero-trust"] = Field(default="dpu", description="Mode of the cards.")
    node_labels: Mapping[str, str] = Field(default={}, description="Labels of the DPU's node in its cluster.")
    reboot: Literal["reboot", "power_cycle"] = Field(
        default="power_cycle", description="How a host is restarted when its card needs it."
    )
    phase_limits: Mapping[str, float] = Field(
        default={},
        description="Phase -> seconds after which it has failed; others have the limits of the documentation.",
    )
    charts: tuple[ChartConfig, ...] = Field(
        default=(), max_length=200, description="Charts that owners of leases may install as services on their DPU."
    )
    chains: ChainConfig | None = Field(
        default=None, description="Whether owners may connect chains, and what; by default they may not."
    )
    networks: Ranges = Field(
        default=(), max_length=64, description="Ranges of addresses that owners may use for networks of their services."
    )
    volumes: VolumeConfig | None = Field(
        default=None, description="Whether owners may have volumes, and which; by default they may not."
    )
    vpcs: VpcConfig | None = Field(
        default=None, description="Whether owners may create VPCs, and which; by default they may not."
    )
    park: Literal["power_off", "wipe", "reimage", "leave"] = Field(
        default="leave",
        description="What is done to a card after its DPU, because DPF lets its system run on: `power_off` or `wipe` "
        "it by its BMC, `reimage` it with park_image, or `leave` it.",
    )
    park_image: str = Field(
        default="", max_length=2000, description="Address of the image for `reimage`. Empty: that of `image`."
    )
    park_timeout: float = Field(
        default=3600.0, gt=0, le=86_400, description="Seconds after which a card that cannot be parked is quarantined."
    )
    root: bool = Field(
        default=False,
        description="Whether owners of leases can become root on the DPU, by its flavor, image or charts. The card is "
        "then installed anew after each lease.",
    )
    drift: Literal["report", "restore"] = Field(
        default="report", description="What is done if somebody else has changed a field that Drydock has written."
    )
    credentials: CredentialConfig | None = Field(
        default=None, description="Whether and how owners may request credentials; by default they may not."
    )
    reimage: int = Field(default=1, ge=0, le=5, description="How often a failed installation is begun anew.")

    @field_validator("image", "park_image")
    @classmethod
    def _is_image(cls, value: str, info: ValidationInfo) -> str:
        return value if not value and info.field_name == "park_image" else check_url(value)

    @model_validator(mode="before")
    @classmethod
    def _image_and_flavor_are_given_once(cls, given: Any) -> Any:
        """Let image and flavor of a deployment be found where those without a deployment are."""
        if not isinstance(given, Mapping):
            return given
        within = given.get("deployment")
        if within is None:
            missing = [name for name in ("image", "flavor") if name not in given]
            if missing:
                raise ValueError(f"{missing[0]}: it is required, or a `deployment`.")
            return given
        within = within.model_dump() if isinstance(within, DeploymentConfig) else within
        if not isinstance(within, Mapping):
            return given
        for name in ("image", "flavor"):
            if name in given and given[name] != within.get(name):
                raise ValueError(f"{name}: with `deployment`, give it as deployment.{name} only.")
        return {**given, **{name: within[name] for name in ("image", "flavor") if name in within}}

    @model_validator(mode="after")
    def _deployment_can_be_used(self) -> Self:
        if (made := self.deployment) is None:
            return self
        if len(self.namespace) > MOST_NAMESPACE:
            raise ValueError(f"namespace: with `deployment`, it has at most {MOST_NAMESPACE} characters.")
        if made.chains and self.chains is not None:
            raise ValueError("chains: owners cannot connect chains where the deployment has chains of its own.")
        if made.chains and self.vpcs is not None:
            raise ValueError("vpcs: owners cannot use interfaces where the deployment has chains of its own.")
        for one in made.parsed():
            try:
                check_allowed(one.chart, allowed(self.charts))
            except InvalidRequest as error:
                where = f"deployment.services.{one.name}.{error.field}"
                raise ValueError(f"{where}: {error.message} Add it to `charts`.") from error
        return self

    @model_validator(mode="after")
    def _flavor_can_be_used(self) -> Self:
        if isinstance(self.flavor, str) and not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", self.flavor):
            raise ValueError("flavor: the name of a DPUFlavor has lower-case letters, digits, hyphens and dots.")
        return self

    @model_validator(mode="after")
    def _networks_are_of_use(self) -> Self:
        networks_need_chains(self.networks, self.chains)
        return self

    @model_validator(mode="after")
    def _credentials_are_apart(self) -> Self:
        if self.credentials is not None and self.credentials.namespace == self.namespace:
            raise ValueError("credentials.namespace: it must not be the namespace of the DPF objects.")
        return self

    def limit(self, phase: str) -> float:
        """Return the seconds that a phase may last."""
        return float(self.phase_limits.get(phase, LIMITS.get(phase, LIMIT)))

    @property
    def flavor_name(self) -> str:
        """The name of an existing flavor; empty if one is created for each DPU."""
        return self.flavor if isinstance(self.flavor, str) else ""


def hugepages_gib(flavor: Mapping[str, Any]) -> float:
    """Return the memory in GiB that the kernel parameters of a flavor set aside as huge pages.

    A card whose flavor sets aside more than it has does not boot, and DPF has no way back
    (https://github.com/NVIDIA/doca-platform/issues/17).
    """
    grub = flavor.get("grub")
    given = grub.get("kernelParameters") if isinstance(grub, Mapping) else None
    size, total = _DEFAULT_PAGE_GIB, 0.0
    for one in given if isinstance(given, list) else ():
        if found := _SIZE.match(str(one)):
            size = int(found[1]) * _UNIT[found[2].upper()]
        elif found := _HUGEPAGES.match(str(one)):
            total += int(found[1]) * size
    return total


def flavor_problem(flavor: Mapping[str, Any], memory_gib: int | None, mode: str) -> str:
    """Return why a flavor must not be installed on a card with this memory, in this mode; empty if it may.

    DPUFlavors have `dpuMode` in some versions of DPF.
    """
    pages = hugepages_gib(flavor)
    if memory_gib and pages >= memory_gib:
        sizes = f"The flavor sets aside {pages:g} GiB as huge pages, and the card has {memory_gib} GiB."
        return f"{sizes} It would not boot."
    wanted = flavor.get("dpuMode")
    if isinstance(wanted, str) and wanted and wanted != mode:
        return f"The flavor puts cards into mode {wanted}, and `mode` of the blueprint is {mode}."
    return ""
