"""Names of operations in the OpenAPI schema: a verb and a noun, derived from the method and the path.

`POST /api/v1/leases/{id}/release` is `release_lease`. Generated clients name their functions after these.
"""

from __future__ import annotations

import re

_VARIABLE = re.compile(r"[{<].*[}>]")
_SPECIAL = {
    "post authorizations": "request_authorization",
    "post blueprints/*/resources": "register_resource",
    "post blueprints/*/host-keys": "scan_host_keys",
    "post leases/*/console": "read_lease_console",
    "post leases/*/console/input": "write_lease_console",
    "post leases/*/private_key": "read_lease_private_key",
    "post leases/*/dpu-credentials/*/kubeconfig": "read_lease_dpu_credential",
    "post leases/*/heartbeat": "send_lease_heartbeat",
    "get hardware": "list_hardware",
    "get leases/*/file": "read_lease_file",
    "put leases/*/file": "write_lease_file",
    "get leases/*/page": "read_lease_page",
    "put leases/*/page": "write_lease_page",
    "put leases/*/pages": "publish_lease_pages",
    "get leases/*/tree": "download_lease_tree",
    "put leases/*/tree": "upload_lease_tree",
    "post leases/*/server": "configure_lease_server",
    "post leases/*/jobs": "start_lease_job",
    "post leases/*/change-type": "change_lease_type",
    "post leases/*/resize": "resize_lease_disk",
    "post leases/*/tags": "set_lease_tags",
    "post resources/*/acts/*": "start_resource_act",
    "post resources/*/agent": "install_agent",
    "delete resources/*/agent": "uninstall_agent",
    "post resources/*/console": "read_resource_console",
    "post resources/*/change-type": "change_resource_type",
    "post resources/*/resize": "resize_resource_disk",
    "post resources/*/force_destroy": "force_destroy_resource",
    "post resources/*/power": "set_resource_power",
    "post resources/*/tags": "set_resource_tags",
    "post resources/*/update": "update_leased_resource",
    "post users/*/groups": "set_user_groups",
    "post users/*/password": "set_user_password",
}
"""Operation names that are not derived from the method and the path."""
_OF_COLLECTION = {"get": "list", "post": "create", "put": "set", "delete": "delete"}
_OF_MEMBER = {"get": "get", "patch": "update", "put": "set", "delete": "delete"}


def operation_id(method: str, path: str) -> str:
    """Return the name of an operation in the OpenAPI schema.

    `path` is written as in the schema (`{id}`) or as in Django's URLs (`<id:id>`).
    """
    pieces = ["*" if _VARIABLE.fullmatch(piece) else piece for piece in path.split("/v1/", 1)[-1].split("/")]
    method = method.lower()
    if special := _SPECIAL.get(f"{method} {'/'.join(pieces)}"):
        return special
    words = [piece.replace("-", "_") for piece in pieces if piece != "*"]
    *before, last = words
    around = [_singular(word) for word in before]
    if pieces[-1] == "*":
        named = [_OF_MEMBER[method], *around, _singular(last)]
    elif _is_plural(last):
        named = [_OF_COLLECTION[method], *around, last if method == "get" else _singular(last)]
    elif method == "post":
        named = [last, *(around if "*" in pieces else before)]
    else:
        named = [_OF_MEMBER[method], *around, last]
    return "_".join(named)


def _is_plural(word: str) -> bool:
    return word.endswith("s") and not word.endswith("ss")


def _singular(word: str) -> str:
    return word.removesuffix("s") if _is_plural(word) else word
