"""The part of a config about the ramdisk that hosts are booted into, and about the images that are deployed."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from blueprints.contract import Fields

Method = Literal[
    "nvme_sanitize_crypto", "nvme_sanitize_block", "nvme_format_crypto", "nvme_format", "ata_secure_erase_enhanced",
    "ata_secure_erase", "discard", "overwrite",
]  # fmt: skip
Url = Annotated[str, Field(pattern=r"^https?://[^\s/?#@\\]+(/[^\s\\]*)?$", max_length=2000)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]


def _certificates(text: str) -> str:
    if text and "-----BEGIN CERTIFICATE-----" not in text:
        raise ValueError("Must be certificates as PEM text, which begins with -----BEGIN CERTIFICATE-----.")
    return text


class Ramdisk(Fields):
    """The ramdisk: an image of Drydock that inspects, erases and writes the disks of a host."""

    url: Url | Literal[""] = Field(
        default="",
        description="Address of the ramdisk's bootable ISO image, from which the BMCs or the hosts fetch it. Empty for "
        "boot: network, where your boot server decides.",
    )
    boot: Literal["medium", "http", "network"] = Field(
        default="medium",
        description="How hosts boot it. medium: from a virtual CD. http: by UEFI HTTP boot from the address. network: "
        "by PXE from your own boot server.",
    )
    port: int = Field(default=22, ge=1, le=65535, description="SSH port of the ramdisk.")
    boot_timeout: float = Field(
        default=900, gt=0, le=3600, description="Time for the ramdisk to accept logins after power on, in seconds."
    )
    first_cleaning: bool = Field(
        default=True, description="Erase all fixed disks when a host is enrolled. false: only after leases."
    )
    methods: tuple[Method, ...] = Field(
        default=(), description="Allowed methods of erasure. Empty: all. Each disk gets the best that it supports."
    )
    samples: int = Field(
        default=64, ge=1, le=10_000, description="Number of places on each disk that are read after its erasure."
    )
    firmware: Literal["require", "report"] = Field(
        default="require",
        description="require: after a lease, a host whose BIOS settings or Secure Boot differ from those at its "
        "enrolment is not leased again. report: only record the differences.",
    )
    outside_disks: Literal["require", "report"] = Field(
        default="require",
        description="require: a host whose TPM could not be cleared, or whose boot entries could not be removed, is "
        "not leased again. report: only record it.",
    )
    firmware_ignored: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(
        default=(), max_length=200, description="BIOS settings that may differ; * matches any text."
    )

    @model_validator(mode="after")
    def _is_found(self) -> Self:
        if self.boot == "network" and self.url:
            raise ValueError("boot: network takes the ramdisk from your boot server, so url must be empty")
        if self.boot != "network" and not self.url:
            raise ValueError(f"boot: {self.boot} requires url, the address of the ramdisk's ISO image")
        return self


class RootDevice(Fields):
    """The disk that an image is written to: the smallest one that has all of these properties."""

    name: str | None = Field(default=None, max_length=255, description="Name in the ramdisk, such as nvme0n1.")
    serial: str | None = Field(default=None, max_length=255, description="Serial number.")
    wwn: str | None = Field(default=None, max_length=255, description="World Wide Name.")
    model: str | None = Field(default=None, max_length=255, description="Model.")
    vendor: str | None = Field(default=None, max_length=255, description="Vendor.")
    rotational: bool | None = Field(default=None, description="Whether it is a hard disk with platters.")
    min_size_bytes: PositiveInt | None = Field(default=None, description="Minimum size in bytes.")
    max_size_bytes: PositiveInt | None = Field(default=None, description="Maximum size in bytes.")


class Image(Fields):
    """An image of an operating system that can be deployed."""

    url: Url = Field(description="Address from which the ramdisk downloads the image.")
    sha256: str = Field(
        pattern=r"^[0-9a-fA-F]{64}$", description="SHA-256 of the file at this address, as 64 hexadecimal digits."
    )
    format: Literal["raw", "qcow2", "raw.zst", "qcow2.zst"] = Field(
        description="Format of the file; zst: compressed by zstd."
    )
    root_device: RootDevice | None = Field(
        default=None, description="The disk to write to. Empty: the smallest of at least 4 GiB."
    )
    ready_by: Literal["cloud-init", "ssh"] = Field(
        default="cloud-init",
        description="How the end of the first boot is detected: by cloud-init, or by ssh, as soon as a login succeeds.",
    )
    ca: Annotated[str, AfterValidator(_certificates)] = Field(
        default="",
        max_length=100_000,
        description="Certificates of the authorities that sign the server's certificate, as PEM text. Empty: those "
        "of the ramdisk.",
    )

    @property
    def hints(self) -> dict[str, Any]:
        """Return the root device hints that are set."""
        return {} if self.root_device is None else self.root_device.model_dump(mode="json", exclude_none=True)
