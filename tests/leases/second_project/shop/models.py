from django.db import models


class Order(models.Model):
    what = models.CharField(max_length=50)
    lease = models.OneToOneField("leases.Lease", null=True, on_delete=models.SET_NULL)

    def __str__(self):
        return self.what
