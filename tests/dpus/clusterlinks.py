"""Access to DPU clusters, by the kubeconfig that their Secret has."""

from __future__ import annotations

import base64

from tests.dpus.api import Api, Json

# A tenant's Secret of kamaji has these keys; DPF reads the first (assumed for static clusters, too).
KEYS = ("super-admin.conf", "admin.conf", "kubeconfig")


class ClusterLinks:
    """Connections to the API servers of DPU clusters, one for each kubeconfig."""

    def __init__(self, namespace: str = "default") -> None:
        self.namespace = namespace
        self._apis: dict[str, Api] = {}

    def open(self, secret: Json | None) -> Api | None:
        """Return access by a Secret, or None if it has no kubeconfig."""
        content = (secret or {}).get("data") or {}
        for key in KEYS:
            if key in content:
                text = base64.b64decode(content[key]).decode()
                if text not in self._apis:
                    self._apis[text] = Api(text, namespace=self.namespace)
                return self._apis[text]
        return None

    @property
    def apis(self) -> list[Api]:
        """All that are open."""
        return list(self._apis.values())

    def close(self) -> None:
        for api in self._apis.values():
            api.close()
        self._apis.clear()


def secret_of(name: str, kubeconfig: str) -> Json:
    """Return the Secret of a DPU cluster."""
    value = base64.b64encode(kubeconfig.encode()).decode()
    return {"metadata": {"name": name}, "type": "Opaque", "data": {key: value for key in KEYS[:2]}}
