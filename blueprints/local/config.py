"""Config of blueprints of kind local_host."""

from __future__ import annotations

from typing import Self

from pydantic import Field, NonNegativeInt, model_validator

from blueprints.contract import Fields

NOBODY = 65534


class Config(Fields):
    """Config of a blueprint of kind local_host. By default, eight leases share the capacity of the machine."""

    slots: int = Field(default=8, ge=1, description="Leases at the same time.")
    cpu_millicores: NonNegativeInt | None = Field(default=None, description="Empty: as many as the machine has.")
    ram_mib: NonNegativeInt | None = Field(default=None, description="Empty: as much as the machine has.")
    disk_mib: NonNegativeInt | None = Field(default=None, description="Empty: as much as its disk holds.")
    folder: str = Field(
        default="",
        pattern=r"^(/[^\x00]*)?$",
        description="Where homes are made: an absolute path. Empty: below the state folder.",
    )
    region: str | None = Field(default=None, description="What is said about where the machine is.")
    traits: tuple[str, ...] = ()
    min_free_mib: NonNegativeInt = Field(default=256, description="With less free disk it counts as unhealthy.")
    first_uid: int = Field(
        default=700_000, ge=10_000, le=4_000_000_000, description="As root: the first uid of leases."
    )
    uids: int = Field(default=1000, ge=1, le=100_000, description="As root: how many uids there are for leases.")

    processes: int = Field(default=2048, ge=16, le=1_000_000, description="As root: most processes of a lease at once.")
    open_files: int = Field(default=65_536, ge=64, description="As root: most open files of each process of a lease.")
    cgroup: str = Field(
        default="/sys/fs/cgroup/drydock",
        pattern=r"^(/[^\x00]*)?$",
        description="As root: the cgroup v2 folder in which leases get groups that hold them to the processors and "
        "memory that they took, where the machine allows it. Empty: none.",
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
