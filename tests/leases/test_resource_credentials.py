"""The own credential of a resource: given to its steps, never shown, and deleted with the resource."""

from __future__ import annotations

import pytest
from django.db import connection

from blueprints.fake.cloud import Cloud
from blueprints.models import Credential
from drydock.core import rotation
from drydock.core.errors import InvalidRequest, NotAllowed, NotSupported
from drydock_client.values import to_json
from leases.engine.core import specs, workers
from leases.engine.core.runs import start
from leases.messaging.inline import settle
from leases.models import Event, Resource, ResourceCredential
from leases.operations import credentials, resources
from leases.operations.callers import caller

SECRET = "very-secret-c0ffee"


@pytest.fixture
def root(django_user_model):
    workers.seen("elsewhere:1")
    return caller(django_user_model.objects.create_superuser("root"))


@pytest.fixture
def cloud():
    return Cloud("t")


@pytest.fixture
def pool(blueprint):
    return blueprint(config={"provider": "t", "credential": "fleet"}, max_resources=0)


@pytest.fixture
def server(pool, root, until):
    """A registered server without a credential of its own."""
    added = resources.register(root, pool.name, {"name": "server"})
    return until(Resource.objects.get(pk=added.id), state="active")


def check(resource):
    start(resource_id=resource.pk, phase="check")
    settle()
    resource.refresh_from_db()
    return resource.check_failures


def test_it_replaces_the_secrets_of_the_blueprints_credential_for_one_resource(root, server, cloud):
    Credential.objects.create(name="fleet", secrets={"password": "of the fleet", "user": "admin"})
    cloud.lock(specs.name_of(server), SECRET)
    assert check(server) == 1, "the password of the fleet is refused"
    credentials.set_resource_credential(root, server.pk, secrets={"password": SECRET})
    assert check(server) == 0
    view = specs.resource_view(Resource.objects.get(pk=server.pk))
    assert view.credential_or("fleet") == {"password": SECRET, "user": "admin"}
    assert SECRET not in repr(view)
    assert SECRET in str(list(specs.resource_secrets(view))), "it is removed from what steps say"


def test_no_face_shows_it_and_it_is_stored_encrypted(root, server):
    info = credentials.set_resource_credential(root, server.pk, secrets={"password": SECRET})
    assert info.credential_fields == ("password",)
    assert SECRET not in str(to_json(info)) + repr(info) + str(list(Event.objects.values()))
    assert Event.objects.get(kind="resource.credential").message == "Stored: password."
    with connection.cursor() as cursor:
        cursor.execute("SELECT secrets FROM leases_resourcecredential")
        assert SECRET not in cursor.fetchone()[0]
        cursor.execute("SELECT leases_resource::text FROM leases_resource")
        assert SECRET not in cursor.fetchone()[0]


def test_it_can_be_given_with_the_registration_so_that_the_first_check_has_it(pool, root, cloud, until, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"step_retry_limit": 1})
    added = resources.register(root, pool.name, {"name": "server", "credential": {"password": SECRET}})
    resource = Resource.objects.get(pk=added.id)
    assert (resource.registration, added.credential_fields) == ({"name": "server"}, ("password",))
    cloud.lock(specs.name_of(resource), SECRET)
    until(resource, state="active")
    assert not Event.objects.filter(kind__in=("step.failed", "resource.check_failed")).exists()


def test_a_first_check_that_waits_goes_on_once_the_right_one_is_stored(pool, root, cloud, until):
    added = resources.register(root, pool.name, {"name": "server", "credential": {"password": "wrong"}})
    resource = Resource.objects.get(pk=added.id)
    cloud.lock(specs.name_of(resource), SECRET)
    settle()
    resource.refresh_from_db()
    assert "refuses the password" in resource.message
    resource.runs.update(due_at="2100-01-01T00:00Z")
    credentials.set_resource_credential(root, resource.pk, secrets={"password": SECRET})
    until(resource, state="active")


def test_it_is_deleted_with_the_resource_and_on_request(root, server):
    credentials.set_resource_credential(root, server.pk, secrets={"password": SECRET})
    assert credentials.set_resource_credential(root, server.pk).credential_fields == ()
    assert not ResourceCredential.objects.exists()
    credentials.set_resource_credential(root, server.pk, secrets={"password": SECRET})
    resources.retire(root, server.pk)
    settle()
    server.refresh_from_db()
    assert (server.state, server.credential_fields) == ("destroyed", [])
    assert not ResourceCredential.objects.exists()


def test_a_rotation_of_the_key_covers_it():
    assert rotation.encrypted_models()[ResourceCredential] == ["secrets"]


@pytest.mark.parametrize("given", [{"password": ["x", SECRET]}, {"pass": SECRET}, {"user": "admin"}, [SECRET], SECRET])
def test_a_bad_one_is_refused_without_being_quoted(root, server, given):
    with pytest.raises(InvalidRequest) as refused:
        credentials.set_resource_credential(root, server.pk, secrets=given)
    assert SECRET not in str(refused.value) + str(refused.value.problems)
    assert "credential" in refused.value.field or "secrets" in refused.value.field
    assert not ResourceCredential.objects.exists()


def test_only_operators_set_it_and_only_for_kinds_that_have_one(root, server, owner, blueprint, until, ask):
    with pytest.raises(NotAllowed):
        credentials.set_resource_credential(caller(owner), server.pk, secrets={"password": SECRET})
    blueprint("local", kind="local_host", resource_type="host")
    other = Resource.objects.create(
        blueprint_id=blueprint("x", kind="local_host", resource_type="host").pk, type="host"
    )
    with pytest.raises(NotSupported, match="have no credential of their own"):
        credentials.set_resource_credential(root, other.pk, secrets={"password": SECRET})
