"""What the shop does with leases, as its own code would; says what came of it as JSON."""

import json

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand
from django.db import transaction
from shop import celery  # noqa: F401
from shop.models import Order

from blueprints.models import Blueprint
from leases.allocator import Allocator, Lease
from leases.engine.core.database import InsideTransaction


class Command(BaseCommand):
    def handle(self, *args, **options):
        owner = User.objects.create_user("shop")
        Blueprint.objects.create(name="pool", kind="fake", resource_type="fake", audience="everyone")
        said = {"rolled back": self._rolled_back(owner)}
        with transaction.atomic():
            lease = Allocator("fake", requirements={}, owner=owner, ttl="1h").allocate()
            order = Order.objects.create(what="bread", lease_id=lease.id)
            try:
                lease.wait_until_active(1)
            except InsideTransaction:
                said["inside"] = "refused"
        with Lease.get(order.lease_id, owner=owner) as lease:
            said["state"] = lease.state
            said["command"] = lease.interface("command").run(["bake"]).exit_code
        said["afterwards"] = lease.refresh().state
        print(json.dumps(said))

    def _rolled_back(self, owner):
        with transaction.atomic():
            lease = Allocator("fake", owner=owner).allocate()
            transaction.set_rollback(True)
        from leases.models import Lease as Row

        return Row.objects.filter(pk=lease.id).count()
