"""The conformance suite against the installed `sandcastle`; test_sandcastle.py installs it and runs this."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from blueprints import registry
from blueprints.answers import Json, NeededLease
from blueprints.specs import LeaseView, ResourceView
from blueprints.testing.conformance import Outside
from interfaces.contract import Interface
from interfaces.errors import CommandFailed
from interfaces.registry import Registry
from tests.blueprints.layered_peers import OnMachine, machine
from tests.blueprints.test_webroot import WebrootBench, fetch

__all__ = ["machine"]

DIFF = """diff --git a/sub/page.html b/sub/page.html
new file mode 100644
--- /dev/null
+++ b/sub/page.html
@@ -0,0 +1 @@
+{text}
"""


class TestSandcastle(OnMachine):
    """On a real storage and a real web root."""

    kind = registry.kind("sandcastle")

    def config(self) -> Json:
        return {"disk_mib": 8}

    def requirements(self) -> Json:
        return {"diff_id": 7}

    def impossible(self) -> Json:
        return {}

    def supply(self, needed: NeededLease) -> LeaseView:
        if needed.type != "webroot":
            return super().supply(needed)
        if "webroot" not in self.leased:
            bench = WebrootBench()
            bench.machine, bench.leased = self.machine, {}
            self.leased["webroot"] = bench.activated(bench.lease(bench.built()))
        return self.leased["webroot"]

    def outside(self) -> Sequence[Outside]:
        found = [each for home in self.machine.homes for each in (home / "folder").glob("castle")]
        return [Outside(name=each.name) for each in found]

    def kill(self, resource: ResourceView) -> None:
        server: Any = resource.parents["webroot"].interface("httpd")
        server.stop()

    def litter(self, lease: LeaseView) -> None:
        preview: Any = lease.interface("sandcastle")
        preview.apply(DIFF.format(text="litter"))

    def left_by(self, lease: LeaseView) -> Sequence[str]:
        storage = Path(lease.resource.parents["storage"].facts["folder"])
        pages = Path(lease.resource.parents["webroot"].facts["root"])
        return [each.name for folder in (storage, pages) for each in folder.glob("sub/*")]

    def use(self, interface: Interface) -> None:
        assert isinstance(interface, Registry().get("sandcastle"))
        preview: Any = interface
        assert preview.apply(DIFF.format(text="hello")) == ["sub/page.html"]
        assert fetch(f"{preview.link()}sub/page.html") == (200, b"hello\n")
        assert b"Change 7" in fetch(preview.link())[1]
        for bad in (
            DIFF.format(text="again"),
            DIFF.replace("b/sub", "b/../../out").replace("a/sub", "a/../../out"),
            "no diff",
        ):
            with pytest.raises(CommandFailed):
                preview.apply(bad)
