"""A DPU of kind bluefield whose steps are called one by one, without an engine."""

from __future__ import annotations

from typing import Any

import pytest

from blueprints.amounts import Amounts
from blueprints.answers import Answer, Json, Ready, Wait
from blueprints.dpu.bluefield import flashing as steps
from blueprints.dpu.bluefield import preparing, publishing
from blueprints.dpu.bluefield.config import Config
from blueprints.specs import BlueprintView, ResourceView, Spec
from drydock.core import clock
from tests.bluefield.dpus import Web, Webroot, card_lease, config
from tests.bmc.bluefield import Bluefield
from tests.bmc.flashing import Card


class Lab:
    """A card, an image, a web root, and a DPU that is built step by step."""

    def __init__(self, bmc: Bluefield, card: Card, images: Web, webroot: Webroot) -> None:
        self.bmc, self.card, self.images, self.webroot = bmc, card, images, webroot
        self.parents = {"card": card_lease(bmc), "image": webroot.lease()}
        self.facts: Json = {}
        self.secrets: Json = {}
        self.more: Json = {}

    def spec(self) -> Spec:
        parsed = Config.model_validate(config(self.card, self.images, **self.more))
        blueprint = BlueprintView(id=1, name="dpus", kind="bluefield", generation=1, config=parsed)
        row = ResourceView(
            id=1, key="dpu-1", name="dpu-1", type="dpu", origin="built", blueprint=blueprint, attributes={},
            capacity=Amounts(slots=1), facts=self.facts, secrets=self.secrets, parents=self.parents,
        )  # fmt: skip
        return Spec(phase="build", key="dpu-1", resource=row, parents=self.parents)

    def call(self, act: Any, memo: Json | None = None) -> Answer:
        answer: Answer = act(self.spec(), memo or {})
        if isinstance(answer, Ready):
            self.facts, self.secrets = {**self.facts, **answer.facts}, {**self.secrets, **answer.secrets}
        return answer

    def carry(self, act: Any, memo: Json | None = None, calls: int = 30, pace: float = 0.0) -> Answer:
        """Call a step until it is done or has failed, with a pause of `pace` seconds before each further call."""
        memo = memo or {}
        for _ in range(calls):
            answer = self.call(act, memo)
            if not isinstance(answer, Wait):
                return answer
            memo = answer.memo
            clock.sleep(pace)
        pytest.fail(f"it still waits: {answer.sentence}")

    def publish(self) -> None:
        self.done(publishing.look_at_image, preparing.check_compatible, preparing.decide, publishing.publish)

    def ready(self) -> None:
        """Bring it to the point at which the installation is requested."""
        self.publish()
        self.done(steps.note_rshim, steps.take_rshim)

    def done(self, *acts: Any) -> None:
        """Carry out steps that succeed."""
        for act in acts:
            assert isinstance(answer := self.carry(act), Ready), answer
