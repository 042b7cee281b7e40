"""The controller of DPUServiceCredentialRequests: real accounts and tokens of the DPU clusters, in real Secrets."""

from __future__ import annotations

import base64
import datetime as dt

import yaml

from tests.dpus import conditions
from tests.dpus.api import ACCOUNT, CLUSTER, CREDENTIAL, SECRET, Api, Json, is_deleting, name_of
from tests.dpus.clusterlinks import KEYS
from tests.dpus.generations import READY
from tests.dpus.services import ensure_namespace
from tests.dpus.state import State

ISSUING, FORGETTING = "Issuing", "Forgetting"
"""What requests can be stuck in. One that is forgotten goes without its Secret and its account."""
CONDITIONS = ("ServiceAccountReconciled", "SecretReconciled")
NO_CLUSTER = "Error occurred: error while getting DPU cluster"


class Credentials:
    """Accounts and Secrets of requests, deleted before the finalizer is. Tokens are issued once."""

    def __init__(self, state: State) -> None:
        self.state = state

    def run(self) -> None:
        for request in self.state.all(CREDENTIAL):
            request = self.state.add_finalizer(CREDENTIAL, request)
            if is_deleting(request):
                self._delete(request)
            elif self.state.faults.is_stuck(CREDENTIAL.name, ISSUING, name_of(request)):
                self._put(request, NO_CLUSTER)
            elif not (request.get("status") or {}).get("secret"):
                self._issue(request)

    def _issue(self, request: Json) -> None:
        spec = request["spec"]
        for part in ("secret", "serviceAccount"):
            if spec[part]["namespace"] != self.state.apart:
                self.state.violations.add(f"{CREDENTIAL.name} {name_of(request)}: spec.{part} is not set apart")
                return
        found = self._cluster(spec["targetCluster"]["name"])
        if found is None:
            return self._put(request, NO_CLUSTER)
        api, kubeconfig = found
        ensure_namespace(api)
        name = spec["serviceAccount"]["name"]
        if api.get(ACCOUNT, name) is None:
            api.create(ACCOUNT, {"metadata": {"name": name}, "automountServiceAccountToken": False})
        config = yaml.safe_load(kubeconfig)
        config["users"] = [{"name": "admin", "user": {"token": api.token(name, _seconds(spec))}}]
        data = {"kubeconfig": base64.b64encode(yaml.safe_dump(config).encode()).decode()}
        self.state.secrets.create(
            SECRET, {"metadata": {"name": spec["secret"]["name"]}, "type": "Opaque", "data": data}
        )
        return self._put(request, "")

    def _delete(self, request: Json) -> None:
        name = name_of(request)
        if self.state.faults.keeps_finalizer(CREDENTIAL.name, name):
            return
        if not self.state.faults.is_stuck(CREDENTIAL.name, FORGETTING, name):
            found = self._cluster(request["spec"]["targetCluster"]["name"])
            if found is not None:
                found[0].delete(ACCOUNT, request["spec"]["serviceAccount"]["name"])
            self.state.secrets.delete(SECRET, request["spec"]["secret"]["name"])
        self.state.drop_finalizer(CREDENTIAL, request)

    def _cluster(self, name: str) -> tuple[Api, str] | None:
        """Return access to the accounts of a ready DPU cluster, and its kubeconfig."""
        cluster = self.state.find(CLUSTER, name)
        if cluster is None or (cluster.get("status") or {}).get("phase") != READY:
            return None
        secret = self.state.secret(cluster["spec"].get("kubeconfig") or "")
        api = self.state.account_links.open(secret)
        if api is None or secret is None:
            return None
        given = next(secret["data"][key] for key in KEYS if key in secret["data"])
        return api, base64.b64decode(given).decode()

    def _put(self, request: Json, problem: str) -> None:
        spec, generation = request["spec"], request["metadata"]["generation"]
        now = dt.datetime.now(dt.UTC)
        until = now + dt.timedelta(seconds=_seconds(spec))

        def put(status: Json) -> None:
            for of_type in (*CONDITIONS, READY):
                reason = "Error" if problem else "Success"
                conditions.put(status, of_type, not problem, reason, problem, generation)
            if not problem:
                for part in ("secret", "serviceAccount", "targetCluster"):
                    there = spec[part]
                    status[part] = f"{there.get('namespace', request['metadata']['namespace'])}/{there['name']}"
                status["issuedAt"], status["expirationTimestamp"] = (
                    f"{one:%Y-%m-%dT%H:%M:%SZ}" for one in (now, until)
                )

        self.state.change_status(CREDENTIAL, request, put)


def _seconds(spec: Json) -> int:
    return int(spec["duration"].rstrip("s"))
