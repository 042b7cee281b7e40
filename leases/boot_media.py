"""Serve boot media to the controllers of machines, which cannot sign in (`ServesMedia`).

The address has the id of a resource, a random token and the name of a medium. A wrong token is answered as everything
else that does not exist.
"""

from __future__ import annotations

import hmac
import logging
import re

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseNotFound

from blueprints import registry
from blueprints.contract import ServedMedium, ServesMedia
from drydock.core import clock
from drydock.core.errors import DrydockError
from leases.engine.core import specs
from leases.models import Resource

log = logging.getLogger(__name__)

PATH = r"^boot/(?P<resource_id>[1-9][0-9]{0,17})/(?P<token>[A-Za-z0-9_-]{16,128})/(?P<name>[a-z0-9.-]{1,31})$"
LARGEST = 16 << 20
"""Maximum size in bytes of a medium."""
_RANGE = re.compile(r"bytes=([0-9]{1,12})-([0-9]{0,12})")
_HEADERS = {"Cache-Control": "no-store", "Accept-Ranges": "bytes", "X-Content-Type-Options": "nosniff"}


def medium(request: HttpRequest, resource_id: str, token: str, name: str) -> HttpResponse:
    """Return a medium, or the part of it that the controller asks for."""
    if request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(("GET", "HEAD"))
    caller = request.META.get("REMOTE_ADDR", "")
    found = _found(int(resource_id), token, name)
    if found is None:
        log.warning("A boot medium of resource %s was refused to %s.", resource_id, caller)
        return _nothing_here()
    content = found.content()
    if len(content) > LARGEST:
        raise ValueError(f"The medium {name} has {len(content)} bytes; at most {LARGEST} are served.")
    log.info("The boot medium %s of resource %s was served to %s.", name, resource_id, caller)
    return _answer(content, request.headers.get("Range", ""))


def _nothing_here() -> HttpResponse:
    answer = HttpResponseNotFound(b"There is no such medium.\n", content_type="text/plain", headers=_HEADERS)
    # Django would log the path, with a token that may have been valid.
    answer._has_been_logged = True  # type: ignore[attr-defined]
    return answer


def _found(resource_id: int, token: str, name: str) -> ServedMedium | None:
    """Return the medium that a resource offers now under this name and token, or None."""
    resource = Resource.objects.select_related("blueprint").filter(pk=resource_id, gone_at=None).first()
    if resource is None:
        return None
    try:
        kind = registry.kind(resource.blueprint.kind)
        offered = kind.media(specs.resource_view(resource, parents=False)) if isinstance(kind, ServesMedia) else ()
    except DrydockError:
        log.exception("The boot media of resource %s cannot be read.", resource_id)
        return None
    now, given = clock.now(), token.encode()
    fitting = [
        one for one in offered
        if hmac.compare_digest(one.token.encode(), given) and one.name == name and now < one.expires_at
    ]  # fmt: skip
    return next(iter(fitting), None)


def _answer(content: bytes, wanted: str) -> HttpResponse:
    """Return the content, or one range of it, which many controllers ask for one after another."""
    size, match = len(content), _RANGE.fullmatch(wanted)
    if match is None:
        return HttpResponse(content, content_type="application/octet-stream", headers=_HEADERS)
    first, last = int(match[1]), min(int(match[2] or size - 1), size - 1)
    if first > last:
        headers = {**_HEADERS, "Content-Range": f"bytes */{size}"}
        return HttpResponse(status=416, content_type="application/octet-stream", headers=headers)
    headers = {**_HEADERS, "Content-Range": f"bytes {first}-{last}/{size}"}
    part = content[first : last + 1]
    return HttpResponse(part, status=206, content_type="application/octet-stream", headers=headers)
