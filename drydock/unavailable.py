"""The response to a request that failed: 503 while the database does not answer, else 500."""

from __future__ import annotations

import sys

from django.http import HttpRequest, HttpResponse
from django.views.defaults import server_error

from leases.engine.core import database
from leases.rest.problems import unavailable

RETRY_AFTER = 2
"""Seconds after which a browser should repeat the request."""
_PAGE = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="refresh" content="{RETRY_AFTER}">
<title>Not available | Drydock</title>
</head>
<body>
<h1>The database is not reachable</h1>
<p>Nothing is lost. This page reloads every {RETRY_AFTER} seconds.</p>
<p>For operators: <code>drydock doctor</code> shows the problem.</p>
</body>
</html>
"""


def failed(request: HttpRequest) -> HttpResponse:
    """Answer a request that raised an error (Django's `handler500`)."""
    error = sys.exc_info()[1]
    if error is None or not database.is_lost(error):
        return server_error(request)
    if request.path_info.startswith("/api/"):
        return unavailable(error)
    database.report(error)
    said = HttpResponse(_PAGE, status=503, headers={"Retry-After": str(RETRY_AFTER), "Cache-Control": "no-store"})
    said._has_been_logged = True  # type: ignore[attr-defined]
    return said
