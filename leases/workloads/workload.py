"""The workload of a request: a command that runs when the lease is active. When the command ends, the lease ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from blueprints.units import Port
from drydock.core.errors import InvalidRequest
from interfaces.command import container
from interfaces.passing import unpassable

_NUL_FREE = r"^[^\x00]*$"


def _passable(text: str) -> str:
    if said := unpassable(text):
        raise ValueError(f"a process cannot be given {said}")
    return text


Argument = Annotated[str, Field(max_length=131_072, pattern=_NUL_FREE), AfterValidator(_passable)]

Variable = Annotated[str, Field(max_length=255, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]

Value = Annotated[str, Field(max_length=32_768, pattern=_NUL_FREE), AfterValidator(_passable)]

Words = Annotated[list[Argument], Field(min_length=1, max_length=1000)] | Annotated[Argument, Field(min_length=1)]


def _port(given: Any) -> Any:
    """Return a port in full; a number alone is one of TCP."""
    text = f"{given}/tcp" if isinstance(given, int) and not isinstance(given, bool) else given
    if not isinstance(text, str):
        return text
    try:
        return str(Port.parse(text if "/" in text else f"{text}/tcp"))
    except InvalidRequest as error:
        raise ValueError(error.message) from None


PortText = Annotated[str, Field(max_length=9), BeforeValidator(_port)]


class Workload(BaseModel):
    """A command, or a container that podman runs on the leased host."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Words | None = Field(
        default=None,
        description="Exact arguments, or one line for a shell. With an image: the arguments of its entry point, or "
            "empty for the image's own command.",
    )  # fmt: skip
    image: Annotated[str, Field(max_length=255)] = Field(
        default="", description="Container image, such as docker.io/library/alpine:3. Empty: no container."
    )
    archive: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = Field(
        default="",
        description="SHA-256 of an image archive (docker-archive or OCI) that an operator has stored for the workers. "
            "It is copied to the host and verified there, instead of pulling an image.",
    )  # fmt: skip
    ports: Annotated[tuple[PortText, ...], Field(max_length=32)] = Field(
        default=(),
        description="Ports of the host that the container listens on, such as 8080/tcp. They are open in the host's "
            "firewall until the lease ends. Require an image or archive.",
    )  # fmt: skip
    env: dict[Variable, Value] = Field(
        default_factory=dict, max_length=1000, repr=False,
        description=("Environment variables. They are stored encrypted until the workload has started, and are never "
            "shown."),
    )  # fmt: skip
    cwd: Annotated[str, Field(max_length=4096, pattern=_NUL_FREE), AfterValidator(_passable)] = Field(
        default="", description="Working folder: relative to the lease's home, or absolute in the container."
    )

    @field_validator("image")
    @classmethod
    def _named(cls, image: str) -> str:
        if image and not container.is_image(image):
            raise ValueError("it is not a valid image name; write it like docker.io/library/alpine:3")
        return image

    @field_validator("env")
    @classmethod
    def _not_podmans(cls, env: dict[str, str], info: Any) -> dict[str, str]:
        astray = sorted(name for name in env if _contains(info.data) and container.is_podmans(name))
        if astray:
            raise ValueError(
                f"podman on the host would read {astray[0]} itself; set the variable in the image or command"
            )
        return env

    @field_validator("cwd")
    @classmethod
    def _absolute(cls, cwd: str, info: Any) -> str:
        if cwd and _contains(info.data) and not cwd.startswith("/"):
            raise ValueError("a folder in a container must be an absolute path")
        return cwd

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        words = [self.command] if isinstance(self.command, str) else self.command or []
        if self.command is not None and not words[0].strip():
            raise ValueError("the command, or its first word, must not be blank")
        if not (words or self.image or self.archive):
            raise ValueError("a command or an image is required")
        if self.image and self.archive:
            raise ValueError("image and archive cannot be combined: the archive contains the image")
        if self.ports and not (self.image or self.archive):
            raise ValueError("ports require an image or an archive: they are those of a container")
        if len(set(self.ports)) < len(self.ports):
            raise ValueError("a port is given twice")
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the workload as it is stored in plain text, without the values of its environment variables."""
        return {
            "command": self.command, "image": self.image, "archive": self.archive, "ports": list(self.ports),
            "cwd": self.cwd, "variables": sorted(self.env),
        }  # fmt: skip


def _contains(given: Mapping[str, Any]) -> bool:
    """Return whether the fields that were read so far make the workload a container."""
    return bool(given.get("image") or given.get("archive"))
