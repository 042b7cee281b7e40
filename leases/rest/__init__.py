"""The REST API under `/api/v1/`: a thin face of `leases.operations`, and the tokens it is used with.

An answer is the JSON of the frozen values of `leases.client`; what is asked is read by pydantic models; the OpenAPI
schema is made from both. In another Django project it takes `"leases.rest"` in INSTALLED_APPS and its `urls`.
"""
