"""The volumes of a leased DPU: storage of a policy that an operator allows, attached to the host of the DPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from drydock.core.errors import InvalidRequest
from interfaces.dpu_services.objects import ObjectBackend, Objects
from interfaces.dpu_services.service import check_name

MODES = ("block", "filesystem")
ACCESS = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany")
"""Access modes of Kubernetes that DPUVolumes accept."""
FUNCTIONS = ("pf", "vf")
LARGEST_GIB = 1 << 16
_SHOWN = 60


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A volume of a leased DPU. Raises InvalidRequest, with the field, for anything that cannot be given.

    `policy` is a storage policy of the operator. `function` is what the card emulates in the host for the volume: a PF,
    by default one that is plugged in for it (`hotplug`), or a VF, which never is.
    """

    name: str
    policy: str
    size_gib: int
    mode: str = "block"
    access: str = "ReadWriteOnce"
    function: str = "pf"
    hotplug: bool | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "volume")
        if not isinstance(self.policy, str) or not self.policy:
            raise InvalidRequest("Give the storage policy of the volume.", field="policy")
        if type(self.size_gib) is not int or not 1 <= self.size_gib <= LARGEST_GIB:
            raise InvalidRequest(f"`size_gib` must be a whole number from 1 to {LARGEST_GIB}.", field="size_gib")
        for field, allowed in (("mode", MODES), ("access", ACCESS), ("function", FUNCTIONS)):
            given = getattr(self, field)
            if given not in allowed:
                raise InvalidRequest(f"{str(given)[:_SHOWN]!r} is not one of: {', '.join(allowed)}.", field=field)
        if self.hotplug is None:
            object.__setattr__(self, "hotplug", self.function == "pf")
        if type(self.hotplug) is not bool:
            raise InvalidRequest("`hotplug` must be true or false.", field="hotplug")
        if self.hotplug and self.function != "pf":
            raise InvalidRequest("Only a PF can be plugged in for a volume, not a VF.", field="hotplug")

    def to_json(self) -> dict[str, Any]:
        """Return the volume as a dict of JSON types, which `from_json` parses."""
        return asdict(self)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        """Return the volume that `to_json` wrote. Raises InvalidRequest."""
        try:
            return cls(**given)
        except TypeError as error:
            raise InvalidRequest(f"The volume is invalid: {error}.") from error


@dataclass(frozen=True, kw_only=True)
class VolumeLimits:
    """The storage policies that owners may use, and the largest volume of each lease in GiB."""

    policies: tuple[str, ...] = ()
    largest_gib: int = 100


class VolumeBackend(ObjectBackend[Volume]):
    """Carries out the writes of volumes. Raises NotSupported where the host of the DPU cannot have any."""

    limits: VolumeLimits


class Volumes(Objects[Volume, VolumeBackend]):
    """The volumes of one lease. Their data ends with them."""

    noun: ClassVar[str] = "volume"
    most: ClassVar[int] = 8

    def check(self, definition: Volume, backend: VolumeBackend) -> None:
        """Raise InvalidRequest, with the field, for a policy or a size that the config does not allow."""
        limits = backend.limits
        if definition.policy not in limits.policies:
            hint = f"Allowed: {', '.join(limits.policies[:20])}."
            raise InvalidRequest(
                "The config of the blueprint does not allow this storage policy.", field="policy", hint=hint
            )
        if definition.size_gib > limits.largest_gib:
            raise InvalidRequest(
                f"The config of the blueprint allows volumes of at most {limits.largest_gib} GiB.", field="size_gib"
            )

    def keys(self, definition: Volume, backend: VolumeBackend) -> Sequence[str]:
        """Return the name of the volume, which is what two requests of the lease could share."""
        return [f"volume of {backend.lease}/{definition.name}"]
