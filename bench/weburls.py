"""The product's addresses, and beside them bare DRF views that insert or read one row. For the bench's web process."""

from __future__ import annotations

from typing import Any

from django.db import connection
from django.urls import path
from rest_framework.parsers import JSONParser
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from drydock import urls


class Bare(APIView):
    """As little as a view can be that keeps what it is given."""

    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []
    parser_classes = [JSONParser]
    renderer_classes = [JSONRenderer]

    def post(self, request: Request) -> Response:
        """Insert one row."""
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO bench_bare (body) VALUES (%s) RETURNING id", [request.data["type"]])
            return Response({"id": cursor.fetchone()[0]}, status=201)

    def put(self, request: Request) -> Response:
        """Parse the body, and read one row."""
        found = len(request.data)
        with connection.cursor() as cursor:
            cursor.execute("SELECT id, body FROM bench_bare WHERE id = %s", [1])
            row = cursor.fetchone()
        return Response({"id": row[0] if row else None, "found": found})


urlpatterns = [path("bare/", Bare.as_view()), *urls.urlpatterns]
