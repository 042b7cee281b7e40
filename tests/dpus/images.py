"""The controller of BFBs and BlueFieldSoftware. It downloads nothing: a table says which URLs exist."""

from __future__ import annotations

from dataclasses import dataclass

from tests.dpus import conditions
from tests.dpus.api import BFB, SOFTWARE, Json, Kind, is_deleting, name_of
from tests.dpus.generations import DELETING, ERROR, READY
from tests.dpus.state import State

DOWNLOADING, EXTRACTING = "Downloading", "Extracting"
FIELDS = {BFB: "bfb", SOFTWARE: "blueFieldSoftware"}
"""Kind of image -> the field of a DPU that names it."""


@dataclass(frozen=True)
class Image:
    """What is at a URL."""

    doca: str = "3.2.0"
    bsp: str = "4.13.0.13751"
    uefi: str = "4.13.0-13"
    atf: str = "v2.2(release):4.13.0-13"
    size: int = 1_500_000_000
    served: int | None = None
    """Bytes that the server sends, if that is not all of it."""
    models: tuple[str, ...] = ("BlueField2", "BlueField3")
    """Cards that accept it."""

    @property
    def versions(self) -> Json:
        return {"doca": self.doca, "bsp": self.bsp, "uefi": self.uefi, "atf": self.atf}


class Images:
    """Initializing, Downloading, Ready or Error; Deleting, until the finalizer is gone."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.table: dict[str, Image] = {}
        self.downloads: list[str] = []
        """URLs that were downloaded, in order."""

    def run(self) -> None:
        for kind in FIELDS:
            for one in self.state.all(kind):
                self._step(self.state.add_finalizer(kind, one))

    def _step(self, bfb: Json) -> None:
        phase = (bfb.get("status") or {}).get("phase") or "Initializing"
        if is_deleting(bfb):
            self._delete(bfb, phase)
        elif phase in (READY, ERROR):
            self._put(bfb, phase)
        elif failure := self.state.faults.failure(bfb["kind"], phase, name_of(bfb)):
            self._fail(bfb, failure.message)
        elif self.state.is_due(bfb, phase):
            if phase == "Initializing":
                self._put(bfb, DOWNLOADING, "Initialized")
            elif phase == DOWNLOADING:
                self._finish(bfb)
            elif phase == EXTRACTING:
                self._put(bfb, READY, READY)

    def _finish(self, bfb: Json) -> None:
        url = url_of(bfb)
        image = self.table.get(url)
        if image is None:
            self._fail(bfb, f"failed to download {url}: unexpected status code 404")
        elif image.served not in (None, image.size):
            message = f"downloaded file size mismatch: expected {image.size} bytes, got {image.served} bytes"
            self._fail(bfb, message)
        else:
            self.downloads.append(url)
            if kind_of(bfb) is SOFTWARE:
                self._put(bfb, EXTRACTING, "Downloaded", versions={"osISOVersion": image.doca})
                return
            self._put(bfb, READY, "Downloaded", READY, versions=bfb["spec"].get("versions") or image.versions)

    def _fail(self, bfb: Json, message: str) -> None:
        self._put(bfb, ERROR, failed="Downloaded", message=message)

    def _delete(self, bfb: Json, phase: str) -> None:
        if phase != DELETING:
            self._put(bfb, DELETING)
        else:
            self.state.drop_finalizer(kind_of(bfb), bfb)

    def _put(
        self, bfb: Json, phase: str, *true: str, failed: str = "", message: str = "", versions: Json | None = None
    ) -> None:
        """Write a phase, and what else this version of DPF has in the status."""
        generation = bfb["metadata"]["generation"]
        rich = self.state.has_field(kind_of(bfb), "status", "conditions")

        def put(status: Json) -> None:
            status["phase"] = phase
            if not rich:
                return
            status["observedGeneration"] = generation
            if kind_of(bfb) is BFB:
                place = f"{bfb['metadata']['namespace']}-{name_of(bfb)}.bfb"
                status["fileName"] = bfb["spec"].get("fileName") or place
            if versions:
                status["versions"] = versions
            for of_type in true:
                conditions.put(status, of_type, True, "Success", generation=generation)
            if failed:
                conditions.put(status, failed, False, "Error", message, generation)
                conditions.put(status, READY, False, "Error", message, generation)
                conditions.put(status, ERROR, True, "Success", generation=generation)

        self.state.change_status(kind_of(bfb), bfb, put)


def kind_of(image: Json) -> Kind:
    return BFB if image["kind"] == BFB.name else SOFTWARE


def url_of(image: Json) -> str:
    return str(image["spec"]["url" if kind_of(image) is BFB else "osIso"])


def image_of(state: State, spec: Json) -> Json | None:
    """Return the image that the spec of a DPU names."""
    return next((state.find(kind, spec[field]) for kind, field in FIELDS.items() if spec.get(field)), None)
