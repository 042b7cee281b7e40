"""FPGA images are checked, programmed, read back and blanked: with a hand-written tree and a program like fpgaconf."""

from __future__ import annotations

import contextlib
import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from blueprints.accelerators import drafts, images
from blueprints.accelerators.kind import Accelerators
from blueprints.answers import Failed, Ready, Wait
from blueprints.specs import HostView
from drydock_agent import FolderTree, load_drivers, scan
from interfaces.endpoints import LocalEndpoint
from interfaces.transports import transport_to
from tests.accelerators.fake_fpga import BLANK, FILTER, FPGA, INTERFACE, OTHER, FakeFpga, named
from tests.blueprints import host_peers as peers

KIND = Accelerators()
ROOT = LocalEndpoint(uid=0, gid=0, home="/")
STAGED = Path("/var/lib/drydock-images")


@pytest.fixture(autouse=True)
def _database() -> None:
    """Nothing here needs one."""


@pytest.fixture
def fpga(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeFpga]:
    peers.needs_root()
    # Tests in parallel do not share the folder of the installation.
    staged = tmp_path / "staged"
    for name in ("_FETCH", "_PROGRAM", "_REMOVE"):
        monkeypatch.setattr(images, name, getattr(images, name).replace(str(STAGED), str(staged)))
    yield FakeFpga(tmp_path)
    assert not staged.exists() or not list(staged.iterdir()), "a copy of an image was left behind"


def spec(
    fpga: FakeFpga, asked: str | None = None, *, config: Any = None, named: str = "", deadline: float = 10.0
) -> Any:
    """What a step gets, as far as it reads it."""
    given = {"captured": str(fpga.root), "tools": str(fpga.tools), "images": fpga.images()} | (config or {})
    found = KIND.Config.model_validate(given)
    host = HostView(id=7, name="rack-7", blueprint="racks", connect=lambda: transport_to(ROOT))
    resource = SimpleNamespace(
        name=f"fpga {FPGA}", facts={"device": {"id": FPGA, "class": "fpga", "captured": True}}, host=lambda: host
    )
    lease = SimpleNamespace(asked=SimpleNamespace(requirements=KIND.Requirements(image=asked)), facts={})
    arguments = images.Program(image=named) if named else None
    return SimpleNamespace(resource=resource, lease=lease, deadline=deadline, config=found, arguments=arguments)


def done(act: Any, given: Any) -> Any:
    """The answer that ends a step. Waits are not slept, but looks again are counted by the step itself."""
    answer: Any = Wait()
    for _ in range(20):
        answer = act(given, answer.memo)
        if not isinstance(answer, Wait):
            return answer
    raise AssertionError(f"it waits without end: {answer}")


def test_an_image_is_programmed_on_its_device_and_blanked_after_the_lease(fpga: FakeFpga) -> None:
    answer = done(images.program_for_lease, spec(fpga, "filter"))
    assert isinstance(answer, Ready), answer
    assert answer.facts == {"image": "filter", "afu_id": FILTER}
    assert fpga.afu.read_text().strip() == FILTER
    assert fpga.calls()[0].startswith("--segment 0x0000 -B 0x3a -D 0x00 -F 0x0 ")
    assert (fpga.state / "programmed").read_bytes() == (fpga.folder / "filter.gbs").read_bytes()
    answer = done(images.blank, spec(fpga, "filter"))
    assert answer.facts == {"image": "empty", "afu_id": BLANK}
    assert fpga.afu.read_text().strip() == BLANK
    assert len(fpga.calls()) == 2


def test_a_lease_without_an_image_programs_nothing_and_leaves_a_blank_fpga(fpga: FakeFpga) -> None:
    blank = fpga.images() | {"empty": fpga.images()["empty"] | {"afu_id": BLANK}}
    assert done(images.program_for_lease, spec(fpga)) == Ready()
    assert done(images.blank, spec(fpga, config={"images": blank})) == Ready()
    assert fpga.calls() == []
    fpga.afu.write_text(OTHER)
    assert isinstance(done(images.blank, spec(fpga, config={"images": blank})), Ready)
    assert fpga.afu.read_text().strip() == BLANK, "an operator's image does not stay for the next lease either"
    assert done(images.blank, spec(fpga, config={"images": {}})) == Ready()


def test_a_file_with_another_sha256_is_never_programmed(fpga: FakeFpga) -> None:
    given = spec(fpga, "filter")
    expected = given.config.images["filter"].sha256
    (fpga.folder / "filter.gbs").write_bytes(b"something else")
    answer = done(images.program_for_lease, given)
    assert (answer.scope, answer.code) == ("operator", "wrong_sha256")
    assert f"but the image filter must have {expected}" in answer.message
    assert fpga.calls() == []


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"path": "/nowhere/at/all"}, "no_image", "/nowhere/at/all cannot be read on the host: it does not exist"),
        ({"afu_id": OTHER}, "wrong_afu_id", f"but its file says {FILTER}"),
    ],
)
def test_an_image_that_the_blueprint_describes_wrongly_is_refused(fpga, change, code, said) -> None:
    known = fpga.images()
    known["filter"] |= change
    answer = done(images.program_for_lease, spec(fpga, "filter", config={"images": known}))
    assert (answer.code, fpga.calls()) == (code, [])
    assert said in answer.message


def test_an_image_for_another_interface_is_refused_by_the_region_and_by_its_file(
    tmp_path: Path, fpga: FakeFpga
) -> None:
    other = FakeFpga(tmp_path / "second", interface="f" * 32)
    answer = done(images.program_for_lease, spec(other, "filter"))
    assert (answer.scope, answer.code, other.calls()) == ("operator", "wrong_interface", [])
    assert answer.message == (f"The image filter is made for the interface id {INTERFACE}, but {FPGA} has {'f' * 32}.")
    known = fpga.images() | {"filter": named(fpga.image("filter", FILTER, interface="e" * 32))}
    answer = done(images.program_for_lease, spec(fpga, "filter", config={"images": known}))
    assert (answer.code, fpga.calls()) == ("wrong_interface", [])
    assert f"but its file says {'e' * 32}" in answer.message


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"afu-image": {}}', b'{"afu-image": 7}', b'{"afu-image": {"interface-uuid": 1}}']
)
def test_malformed_metadata_is_refused(fpga: FakeFpga, text: bytes) -> None:
    known = fpga.images() | {"filter": named(fpga.image("filter", FILTER, metadata=text))}
    answer = done(images.program_for_lease, spec(fpga, "filter", config={"images": known}))
    assert isinstance(answer, Failed)
    assert (answer.code, fpga.calls()) in (("bad_image", []), ("wrong_interface", []))


def test_a_plain_file_needs_an_afu_id_in_the_blueprint(fpga: FakeFpga) -> None:
    plain = fpga.folder / "plain.rbf"
    plain.write_text(f'"accelerator-type-uuid": "{OTHER}"\n')
    known = fpga.images() | {"plain": named(plain)}
    answer = done(images.program_for_lease, spec(fpga, "plain", config={"images": known}))
    assert (answer.code, fpga.calls()) == ("no_afu_id", [])
    known["plain"]["afu_id"] = OTHER
    assert isinstance(done(images.program_for_lease, spec(fpga, "plain", config={"images": known})), Ready)


def test_a_tool_that_fails_hangs_or_lies_leaves_nothing_half(fpga: FakeFpga) -> None:
    (fpga.state / "fails").touch()
    answer = done(images.program_for_lease, spec(fpga, "filter"))
    assert (answer.code, answer.scope) == ("not_programmed", "step")
    assert answer.message == "fpgaconf could not program filter (exit code 5): Error writing bitstream"
    (fpga.state / "hang").touch()
    answer = done(images.program_for_lease, spec(fpga, "filter", deadline=2.0))
    assert answer.code == "hangs"
    assert "did not program filter within 1 seconds" in answer.message
    (fpga.state / "lies").touch()
    answer = done(images.program_for_lease, spec(fpga, "filter"))
    assert (answer.code, answer.scope) == ("not_programmed", "operator")
    assert f"{FPGA} reports {BLANK} after it was programmed with filter" in answer.message
    (fpga.state / "lies").unlink()
    fpga.afu.write_text("0" * 32)
    assert isinstance(done(images.blank, spec(fpga, "filter")), Ready)
    assert fpga.afu.read_text().strip() == BLANK


def test_a_host_without_the_tool_is_refused(fpga: FakeFpga) -> None:
    (fpga.tools / "fpgaconf").unlink()
    answer = done(images.program_for_lease, spec(fpga, "filter"))
    assert (answer.code, answer.scope) == ("no_tool", "operator")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"interface": ""}, "state no interface id"), ({"driver": "vfio-pci"}, "vfio-pci instead of dfl-pci"),
        ({"ids": "10ee:5001"}, "which Drydock does not program"),
    ],
)  # fmt: skip
def test_an_fpga_that_cannot_be_programmed_safely_is_refused_and_offers_no_images(tmp_path, change, said) -> None:
    peers.needs_root()
    fpga = FakeFpga(tmp_path, **change)
    answer = done(images.program_for_lease, spec(fpga, "filter"))
    assert (answer.code, answer.scope, fpga.calls()) == ("not_programmable", "operator", [])
    assert said in answer.message
    assert "images" not in offered(fpga).attributes


def offered(fpga: FakeFpga) -> Any:
    found = scan(FolderTree(str(fpga.root)), drivers=load_drivers(), traits=("captured",))
    (draft,) = drafts.drafts(KIND.Config.model_validate({"captured": "/x", "images": fpga.images()}), 7, found)
    return draft


def test_leases_can_ask_for_the_images_that_fit_but_not_for_the_blank_one(fpga: FakeFpga) -> None:
    assert offered(fpga).attributes["images"] == ["filter", "other"]


def test_a_copy_that_is_gone_when_it_is_programmed_is_made_again(fpga: FakeFpga) -> None:
    answer = images.program_for_lease(spec(fpga, "filter"), {"stage": "program", "image": "filter", "afu_id": FILTER})
    assert isinstance(answer, Wait)
    assert (answer.memo, fpga.calls()) == ({}, [])


def test_copies_that_an_interrupted_step_left_are_removed_with_the_resource(fpga: FakeFpga) -> None:
    answer = images.program_for_lease(spec(fpga, "filter"), {})
    assert isinstance(answer, Wait)
    staged = fpga.folder / "staged"
    assert [one.name for one in staged.iterdir()] == [f"{fpga.images()['filter']['sha256']}-{FPGA}"]
    assert staged.stat().st_mode & 0o777 == 0o700
    assert images.discard(spec(fpga), {}) == Ready()
    assert not staged.exists()


def test_an_image_is_downloaded_also_if_a_part_of_it_is_there_that_cannot_be_continued(fpga: FakeFpga) -> None:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(fpga.folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            known = fpga.images()
            address = f"http://127.0.0.1:{server.server_port}"
            for name in ("filter", "other"):
                known[name] = {**known[name], "url": f"{address}/{name}.gbs", "path": ""}
            known["other"]["url"] = f"{address}/missing.gbs"
            given = spec(fpga, "filter", config={"images": known})
            # This server does not support ranges.
            (fpga.folder / "staged").mkdir()
            (fpga.folder / "staged" / f"{known['filter']['sha256']}-{FPGA}.part").write_bytes(b"begun")
            assert isinstance(done(images.program_for_lease, given), Ready)
            assert fpga.afu.read_text().strip() == FILTER
            answer = done(images.program_for_lease, spec(fpga, "other", config={"images": known}))
            assert answer.code == "no_image"
        finally:
            server.shutdown()
            thread.join()


def test_a_copy_that_changed_after_it_was_verified_is_not_programmed(fpga: FakeFpga) -> None:
    """As after a crash of the host, or by a download for another FPGA that was under way."""
    given = spec(fpga, "filter")
    first = images.program_for_lease(given, {})
    assert isinstance(first, Wait)
    (copy,) = (fpga.folder / "staged").iterdir()
    copy.write_bytes(b"something else")
    assert images.program_for_lease(given, first.memo).memo == {}, "it is copied again"  # type: ignore[union-attr]
    assert fpga.calls() == []
    assert isinstance(images.program_for_lease(given, {}), Wait)
    copy.write_bytes(b"")
    assert isinstance(done(images.program_for_lease, given), Ready)
    assert (fpga.state / "programmed").read_bytes() == (fpga.folder / "filter.gbs").read_bytes()


def test_fpgas_of_one_host_share_no_copy(fpga: FakeFpga) -> None:
    """What is copied for one of them cannot write to the verified copy of another, or remove it."""
    one, two = spec(fpga, "filter"), spec(fpga, "filter")
    two.resource.facts = {"device": {"id": "0000:5e:00.0", "class": "fpga", "captured": True}}
    assert isinstance(images.program_for_lease(one, {}), Wait)
    assert images.discard(two, {}) == Ready()
    (copy,) = (fpga.folder / "staged").iterdir()
    assert copy.name.endswith(FPGA)
    assert images.discard(one, {}) == Ready()


class _Endless(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(b"x" * 65536)

    def log_message(self, *_: Any) -> None:
        """Write nothing."""


@pytest.mark.parametrize("tool", ["curl", "wget"])
def test_a_server_that_never_ends_does_not_fill_the_disk(fpga: FakeFpga, monkeypatch, tool: str) -> None:
    small = images._FETCH.replace(str(1 << 30), str(1 << 20))
    if tool == "wget":
        small = small.replace("command -v curl", "false")
    monkeypatch.setattr(images, "_FETCH", small)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Endless) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            known = fpga.images()
            known["filter"] |= {"url": f"http://127.0.0.1:{server.server_port}/filter.gbs", "path": ""}
            answer = done(images.program_for_lease, spec(fpga, "filter", config={"images": known}, deadline=5.0))
            assert (answer.code, answer.scope) == ("too_large", "operator")
            assert not list((fpga.folder / "staged").iterdir())
        finally:
            server.shutdown()
            thread.join()


def test_an_operator_programs_an_image_and_a_failure_half_way_is_remembered(fpga: FakeFpga) -> None:
    answer = done(images.program_for_operator, spec(fpga, named="other"))
    assert answer.facts == {"image": "other", "afu_id": OTHER, "programming": "done"}
    answer = done(images.program_for_operator, spec(fpga, named="nothing"))
    assert (answer.code, answer.facts) == ("no_such_image", {})
    assert "Its images are: empty, filter, other." in answer.message
    (fpga.state / "fails").touch()
    answer = done(images.program_for_operator, spec(fpga, named="filter"))
    assert (answer.code, answer.facts) == ("not_programmed", {"programming": images.UNDEFINED})


def image(**change: Any) -> dict[str, Any]:
    return {"path": "/images/a.gbs", "sha256": "0" * 64, "interface_id": INTERFACE, **change}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"a": image()}, "needs exactly one image with blank: true, but there is none"),
        ({"a": image(blank=True), "b": image(blank=True)}, "there are 2: a, b"),
        ({"a": image(blank=True), "b": image(interface_id="f" * 32)}, f"interface id {'f' * 32} needs exactly one"),
        ({"A b": image(blank=True)}, "names of images"), ({"a": image(blank=True, path="")}, "either path or url"),
        ({"a": image(blank=True, url="http://x/y")}, "either path or url"),
        ({"a": image(blank=True, path="relative")}, "absolute path"),
        ({"a": image(blank=True, path="", url="file:///etc/shadow")}, "url must begin with http"),
        ({"a": image(blank=True, sha256="abc")}, "sha256"),
        ({"a": image(blank=True, interface_id="xyz")}, "interface_id"),
    ],
)  # fmt: skip
def test_images_that_cannot_work_are_refused_by_the_config(given, said) -> None:
    with pytest.raises(ValidationError, match=said):
        KIND.Config.model_validate({"images": given})


def test_ids_are_accepted_in_every_form() -> None:
    dashed = "9346116D-8924-53C1-BB5B-E4D1E0CD73DD"
    found = KIND.Config.model_validate({"images": {"a": image(blank=True, interface_id=dashed, sha256="A" * 64)}})
    assert found.images["a"].interface_id == INTERFACE  # type: ignore[attr-defined]
    assert found.images["a"].sha256 == "a" * 64  # type: ignore[attr-defined]
