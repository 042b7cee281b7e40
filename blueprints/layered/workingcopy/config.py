"""Config of blueprints of kind working_copy, attributes of a working copy, and requirements of leases."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field, PositiveInt

from blueprints.amounts import Amounts
from blueprints.contract import Fields
from blueprints.layered.frame import fits
from blueprints.layered.host import OnHost
from blueprints.layered.workingcopy.names import Protocol, Ref, Repository, allowed
from blueprints.matching import Match
from blueprints.specs import Asked, Draft


class Config(OnHost):
    """Config of a blueprint of kind working_copy. By default, any repository over https or ssh."""

    protocols: tuple[Protocol, ...] = Field(
        default=("https", "ssh"),
        min_length=1,
        description="Allowed protocols. Repositories over file are read with the rights of the host lease's account.",
    )
    repositories: tuple[str, ...] = Field(
        default=(),
        description="Patterns of allowed addresses, such as https://example.com/team/*; empty: all, and no credential.",
    )
    repository: Repository | None = Field(default=None, description="Default repository.")
    ref: Ref | None = Field(default=None, description="Default ref. Empty: the default branch.")
    credential: str = Field(
        default="", description="Name of a credential with private_key for ssh, or username and password for https."
    )
    known_hosts: tuple[str, ...] = Field(default=(), description="Lines of known_hosts for ssh; no others are trusted.")
    depth: PositiveInt | None = Field(
        default=None, description="Number of commits to fetch of each branch and tag; empty: all."
    )
    author_name: str = Field(default="", pattern=r"^[^\x00-\x1f<>]*$", description="Author name of commits.")
    author_email: str = Field(default="", pattern=r"^[^\x00-\x1f<>]*$", description="Author e-mail address of commits.")
    disk_mib: PositiveInt = Field(default=2048, description="Disk space to lease from the host, in MiB.")


class Attributes(Fields):
    """Attributes of a working copy."""

    repository: str | None = Field(default=None, description="Address of the repository.")


class Requirements(Fields):
    """Requirements that a lease may set for its working copy."""

    repository: Repository | None = Field(default=None, description="Address of the repository.")
    ref: Ref | None = Field(default=None, description="A branch, a tag or a full commit id.")


MATCHES = (Match("repository", "=", "repository"),)


def drafts(config: Config, asked: Asked | None) -> Iterator[Draft]:
    """Yield a draft for a copy of the requested repository, if it is allowed."""
    wished = asked.requirements.repository if asked else None
    repository = wished or config.repository
    if repository is None or not allowed(repository, config.protocols, config.repositories):
        return
    if config.credential and not config.repositories:
        return
    size = max(asked.amounts.disk_mib if asked else 0, config.disk_mib)
    # What fails for one repository is not held against the others.
    draft = Draft(attributes={"repository": repository}, capacity=Amounts(disk_mib=size), offer=repository[-200:])
    if asked is None or fits(MATCHES, draft, asked):
        yield draft
