"""Config of blueprints of kind bluefield."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, JsonValue, model_validator

from blueprints.accounts.config import Accounts
from blueprints.bluefield.bfcfg import check_parameters

_PLACEHOLDERS = ("$", "<", ">", "{", "}")


def _image(value: str) -> str:
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018 - it raises ValueError
    except ValueError:
        raise ValueError("this is not a valid address") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not parts.path.endswith(".bfb"):
        raise ValueError("it must begin with http:// or https:// and end in .bfb")
    if parts.username or parts.password:
        raise ValueError("it must not contain a user or a password")
    if found := [one for one in _PLACEHOLDERS if one in value]:
        raise ValueError(f"it contains {found[0]!r}; replace the placeholder by its value")
    return value


def _folder(value: str) -> str:
    if value and (value.endswith("/") or {".", ".."} & set(value.split("/"))):
        raise ValueError("it must be a path such as /dev/rshim0, without . or .. and without a slash at its end")
    return value


Folder = Annotated[str, Field(max_length=255, pattern=r"^((/[A-Za-z0-9._:-]+)+)?$"), AfterValidator(_folder)]
Place = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9.:_-]+$")]


class Config(Accounts):
    """How DPUs are installed on cards with a BMC, and how leases use them."""

    image: Annotated[str, AfterValidator(_image)] = Field(
        max_length=2000, description="Address of the BFB image, from which the workers download it."
    )
    sha256: str = Field(
        default="", pattern=r"^([0-9a-fA-F]{64})?$",
        description="SHA-256 of the image, as 64 hexadecimal digits. Empty: only its own checksums are verified.",
    )  # fmt: skip
    doca: str = Field(default="", max_length=63, description="Version of DOCA in the image.")
    models: tuple[str, ...] = Field(
        default=(), max_length=10, description="Generations of cards that the image is made for. Empty: not checked."
    )
    versions: Mapping[str, str] = Field(
        default={}, max_length=50,
        description="Component of the firmware inventory -> version that it must have after the installation.",
    )  # fmt: skip
    flavor: str = Field(default="", max_length=63, description="Name of the flavor, for requirements.")
    parameters: Annotated[Mapping[str, str], AfterValidator(check_parameters)] = Field(
        default={}, description="Parameters of bf.cfg, such as WITH_NIC_FW_UPDATE: no. No secrets."
    )
    password_credential: str = Field(
        default="",
        description='Name of the credential {"password_hash": ...} with the hash of the password for the console, as '
        "printed by `openssl passwd -6`. Empty: nobody can log in with a password.",
    )
    card: Mapping[str, JsonValue] = Field(default={}, description="Requirements for the card, such as its model.")
    webroot: Mapping[str, JsonValue] = Field(
        default={},
        description="Requirements for the web root from which the BMC fetches the image. tls: true: by HTTPS.",
    )
    scp: Mapping[str, JsonValue] | None = Field(
        default=None,
        min_length=1,
        description="Requirements for the host from which a BMC that does not know HTTP fetches the image by SCP, such "
        "as its hostname: a host without BlueField cards. Its SSH server must listen on port 22, where the BMC reaches "
        "it. None: SCP is not used.",
    )
    rshim: Folder = Field(
        default="/dev/rshim0",
        description="Folder of the rshim of a card on its host, by which the image is installed if the BMC fetches it "
        "neither by HTTP nor by SCP, or if the card has no BMC. Empty: such cards are not used.",
    )
    rshims: Mapping[str, Folder] = Field(
        default={}, max_length=10_000,
        description="Serial number of a card -> folder of its rshim, for hosts with several cards.",
    )  # fmt: skip
    addresses: Mapping[str, Place] = Field(
        default={}, description="Serial number of a card -> address of its DPU, as the workers reach it by SSH."
    )
    address: str = Field(
        default="", max_length=255,
        description="Address of DPUs that are not in `addresses`; {serial} is replaced by the card's serial number in "
        "lower case.",
    )  # fmt: skip
    ssh_port: int = Field(default=22, ge=1, le=65535, description="SSH port of a DPU.")
    user: str = Field(
        default="drydock", pattern=r"^[a-z_][a-z0-9_-]{0,31}$", description="Name of the control account on a DPU."
    )
    ready_by: Literal["cloud-init", "ssh"] = Field(
        default="cloud-init",
        description="How the end of the first boot is detected: by cloud-init, or by ssh, as soon as a login succeeds.",
    )
    reboot: Literal["reported", "reboot", "power_cycle", "none"] = Field(
        default="reported",
        description="How the host is restarted after the installation. reported: as the card's firmware says.",
    )
    flash_limit: float = Field(
        default=3600.0, gt=0, le=86_400, description="Time for the installation of an image, in seconds."
    )
    boot_limit: float = Field(
        default=2400.0, gt=0, le=86_400, description="Time for the DPU to start after an installation, in seconds."
    )
    park: Literal["power_off", "leave"] = Field(
        default="power_off",
        description="What happens to the card when its DPU is destroyed. power_off: its operating system is switched "
        "off. leave: it goes on running.",
    )

    @model_validator(mode="after")
    def _is_clear_about_tls(self) -> Self:
        if not isinstance(self.webroot.get("tls"), bool | None):
            raise ValueError("tls in webroot must be true or false")
        return self

    @model_validator(mode="after")
    def _has_addresses(self) -> Self:
        if not self.address and not self.addresses:
            raise ValueError("address or addresses is needed: the BMC does not report the address of a DPU")
        if self.accounts == "shared" and self.user == "root":
            raise ValueError("accounts: shared with user: root would give leases the control account of root")
        return self

    def address_of(self, serial: str) -> str:
        """Return the address of the DPU on a card; empty if the config has none."""
        return _of(serial, self.addresses) or self.address.replace("{serial}", serial.strip().lower())

    def rshim_of(self, serial: str) -> str:
        """Return the folder of the rshim of a card; empty if its image is not installed by rshim."""
        return _of(serial, self.rshims) or self.rshim


def _of(serial: str, among: Mapping[str, str]) -> str:
    known = {key.strip().upper(): value for key, value in among.items()}
    return known.get(serial.strip().upper(), "")
