"""The kind `dpf_image`: an image, downloaded once by DPF and leased by all DPUs that are built from it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import ClassVar

from blueprints.contract import Builds, Checks, Kind, Lists, Plan, Step, Watches
from blueprints.dpf import config as server
from blueprints.dpf import images, owned, watches
from blueprints.dpu.dpf_image import actions
from blueprints.dpu.dpf_image import config as schema
from blueprints.matching import misses
from blueprints.specs import Asked, BlueprintView, Draft, Owned, Problem
from blueprints.watches import Ending, WatchNews, WatchPlace


class DpfImage(Kind, Builds, Checks, Lists, Watches):
    """A BFB or BlueFieldSoftware of DPF for each address, shared by all DPUs that use it."""

    name: ClassVar[str] = "dpf_image"
    resource_type: ClassVar[str] = "dpu_image"
    Config, Requirements, Attributes = schema.Config, schema.Requirements, schema.Attributes
    matches = schema.MATCHES
    idle_timeout: ClassVar[dt.timedelta | None] = dt.timedelta(hours=1)
    check_interval: ClassVar[dt.timedelta | None] = dt.timedelta(minutes=10)

    def drafts(self, config: schema.Config, asked: Asked | None) -> Sequence[Draft]:
        """Return a draft for each image of the config that meets the request."""
        found = [schema.draft(image) for image in config.images]
        if asked is None:
            return found
        wanted = asked.requirements.model_dump(mode="json")
        return [
            one
            for one in found
            if asked.amounts.fits_in(one.capacity) and not misses(schema.MATCHES, one.attributes, wanted)
        ]

    def build(self) -> Plan:
        """Return the plan that lets DPF download the image."""
        return (
            Step(name="create", act=actions.create),
            Step(name="download", act=actions.download, deadline=86_400.0),
        )

    def check(self) -> Plan:
        """Return the plan that checks that DPF still has the image."""
        return (Step(name="look", act=actions.look),)

    def destroy(self) -> Plan:
        """Return the plan that deletes the object of the image until it does not exist any more."""
        return (Step(name="delete", act=actions.delete, deadline=86_400.0),)

    def owned(self, blueprint: BlueprintView, installation: str) -> Sequence[Owned]:
        """Return the images of this installation."""
        return owned(blueprint, installation, images.used_by(dict(blueprint.config)))

    def watched(self, config: schema.Config) -> Sequence[WatchPlace]:
        """Return the types of images that the config has, in the namespace."""
        return watches.places(config, images.used_by(dict(config)))

    def watch(
        self, blueprint: BlueprintView, place: str, installation: str, bookmark: str, ending: Ending
    ) -> Iterator[WatchNews]:
        """Yield the changes of images of ours."""
        return watches.watch(blueprint, place, installation, bookmark, ending)

    def watches_health(self, config: schema.Config) -> bool:
        """Return True: a check reads the object of the image only."""
        return True

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Check that the API server can be used and has DPF."""
        kinds = images.used_by(dict(blueprint.config))
        newer = {images.SOFTWARE: "images"} if images.SOFTWARE in kinds else {}
        found = server.problems(blueprint, [kind for kind in kinds if kind not in newer], newer)
        return found or server.in_dialect(
            blueprint, lambda dialect, where: schema.inexpressible(dialect, blueprint.config, where)
        )
