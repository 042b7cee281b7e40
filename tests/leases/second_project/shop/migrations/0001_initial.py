from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = [("leases", "0001_initial")]
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(primary_key=True)),
                ("what", models.CharField(max_length=50)),
                ("lease", models.OneToOneField("leases.Lease", null=True, on_delete=models.SET_NULL)),
            ],
        )
    ]
