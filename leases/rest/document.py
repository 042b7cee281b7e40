"""The schema as it is served: made once in a process, for anybody may ask, and to make it takes most of a second."""

from __future__ import annotations

import threading
from typing import Any

from django.http import HttpResponse
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request
from rest_framework.response import Response

MADE: dict[str, bytes] = {}
"""Media type -> the document, until the process ends."""
_making = threading.Lock()


class Document(SpectacularAPIView):
    """The OpenAPI document as YAML or JSON; it depends on nothing in the request but the media type."""

    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        """The document."""
        renderer: Any = request.accepted_renderer
        with _making:
            if renderer.media_type not in MADE:
                made: Response = super().get(request, *args, **kwargs)  # type: ignore[no-untyped-call]
                MADE[renderer.media_type] = renderer.render(made.data, renderer.media_type, {})
        return HttpResponse(
            MADE[renderer.media_type], content_type=renderer.media_type,
            headers={"Content-Disposition": f'inline; filename="Drydock.{renderer.format}"'},
        )  # fmt: skip
