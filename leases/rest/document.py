"""The OpenAPI document. It is public and takes most of a second to generate, so each process generates it only once."""

from __future__ import annotations

import threading
from typing import Any

from django.http import HttpResponse
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request
from rest_framework.response import Response

MADE: dict[str, bytes] = {}
"""The generated document by media type, kept until the process ends."""
_making = threading.Lock()


class Document(SpectacularAPIView):
    """Serve the OpenAPI document as YAML or JSON. It depends on nothing in the request except the media type."""

    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        """Return the OpenAPI document."""
        renderer: Any = request.accepted_renderer
        with _making:
            if renderer.media_type not in MADE:
                made: Response = super().get(request, *args, **kwargs)  # type: ignore[no-untyped-call]
                MADE[renderer.media_type] = renderer.render(made.data, renderer.media_type, {})
        return HttpResponse(
            MADE[renderer.media_type], content_type=renderer.media_type,
            headers={"Content-Disposition": f'inline; filename="Drydock.{renderer.format}"'},
        )  # fmt: skip
