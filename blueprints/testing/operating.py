"""Conformance: operations on a resource other than switching its power."""

from __future__ import annotations

from typing import Any

from blueprints.contract import Consoles, Reboots, Resizes, Retypes, Tags
from blueprints.testing.phases import Phases, needs


class Operating(Phases):
    """Tests of Reboots, Resizes, Retypes, Tags and Consoles. A repeated plan must change nothing more."""

    @needs(Reboots)
    def test_what_was_rebooted_is_there_and_can_be_destroyed(self) -> None:
        resource = self.built()
        before = self.names(resource)
        self.ready("reboot", resource)
        self.ready("reboot", resource)
        assert self.names(resource) == before
        self.destroyed(resource)

    @needs(Resizes)
    def test_a_disk_grows_and_never_shrinks(self) -> None:
        resource, sizes = self.built(), self.disk_sizes()
        for wanted in (sizes[0], *sizes):
            self.ready("resize", resource, disk_gib=wanted)
            assert self.disk_of(resource) == wanted
        self.run("resize", resource, disk_gib=sizes[-1] // 2)
        assert self.disk_of(resource) == sizes[-1]
        self.destroyed(resource)

    @needs(Retypes)
    def test_another_type_is_taken_on_and_repeated_is_kept(self) -> None:
        first, second = self.types()
        resource = self.built()
        for wanted, before in ((second, first), (second, first), (first, second)):
            self.ready("retype", resource, None, **_retyping(before, wanted, "on"))
            assert self.type_of(resource) == wanted
        self.destroyed(resource)

    @needs(Retypes)
    def test_what_is_off_becomes_another_type_and_stays_off(self) -> None:
        first, second = self.types()
        resource = self.built()
        self.ready("power", resource, power="off")
        self.ready("retype", resource, None, **_retyping(first, second, "off"))
        assert (self.type_of(resource), self.power_of(resource)) == (second, "off")
        self.destroyed(resource)

    @needs(Tags)
    def test_tags_are_set_and_others_stay(self) -> None:
        resource = self.built()
        before = dict(self.tags_of(resource))
        self.ready("tag", resource, tags={"team": "a", "stage": "test"})
        self.ready("tag", resource, tags={"team": "b"})
        assert dict(self.tags_of(resource)) == {**before, "team": "b", "stage": "test"}
        self.destroyed(resource)

    @needs(Consoles)
    def test_a_console_tells_what_was_written_there(self) -> None:
        resource = self.built()
        assert isinstance(self.kind, Consoles)
        self.write_console(resource, "it says hello\n")
        assert "it says hello" in self.kind.console(resource)
        self.destroyed(resource)


def _retyping(before: str, wanted: str, power: str) -> dict[str, Any]:
    return {"from": before, "type": wanted, "power": power}
