"""The REST API under `/api/v1/`, a thin layer over `leases.operations`, and the tokens that authenticate its users.

Responses are the JSON form of the values in `drydock_client.values`; requests are parsed by pydantic models; the
OpenAPI schema is generated from both. To use the API in another Django project, add `"leases.rest"` to INSTALLED_APPS
and include its `urls`.
"""
