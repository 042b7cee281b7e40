"""Config of blueprints of kind local_host."""

from __future__ import annotations

from typing import Self

from pydantic import Field, NonNegativeInt, model_validator

from blueprints.contract import Fields

NOBODY = 65534


class Config(Fields):
    """Config of a blueprint of kind local_host. By default, eight leases share the capacity of the machine."""

    slots: int = Field(default=8, ge=1, description="Number of leases at the same time.")
    cpu_millicores: NonNegativeInt | None = Field(
        default=None, description="Number of vCPUs. Empty: those of the machine."
    )
    ram_mib: NonNegativeInt | None = Field(default=None, description="Memory. Empty: that of the machine.")
    disk_mib: NonNegativeInt | None = Field(default=None, description="Disk space. Empty: that of the disk.")
    folder: str = Field(
        default="",
        pattern=r"^(/[^\x00]*)?$",
        description="Folder for homes: an absolute path. Empty: below the state folder.",
    )
    region: str | None = Field(default=None, description="Location of the machine, shown in its attributes.")
    traits: tuple[str, ...] = ()
    min_free_mib: NonNegativeInt = Field(
        default=256, description="Free disk space below which the machine counts as unhealthy."
    )
    first_uid: int = Field(default=700_000, ge=10_000, le=4_000_000_000, description="As root: first uid of leases.")
    uids: int = Field(default=1000, ge=1, le=100_000, description="As root: number of uids for leases.")

    processes: int = Field(
        default=2048, ge=16, le=1_000_000, description="As root: maximum number of processes of a lease."
    )
    open_files: int = Field(
        default=65_536, ge=64, description="As root: maximum number of open files of each process of a lease."
    )
    cgroup: str = Field(
        default="/sys/fs/cgroup/drydock",
        pattern=r"^(/[^\x00]*)?$",
        description="As root: cgroup v2 folder in which leases get groups that limit them to their share of "
        "processors and memory, if the machine allows that. Empty: none.",
    )

    @model_validator(mode="after")
    def _spares_nobody(self) -> Self:
        if self.first_uid <= NOBODY < self.first_uid + self.uids:
            raise ValueError(f"the uids of leases must not include {NOBODY} (nobody)")
        return self

    @property
    def window(self) -> range:
        """Return the uids available to leases."""
        return range(self.first_uid, self.first_uid + self.uids)
