from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0037_tree_indexes"),
    ]

    operations = [
        migrations.AddField(
            model_name="quota",
            name="max_extra",
            field=models.JSONField(
                blank=True,
                db_default=models.Value({}, models.JSONField()),
                default=dict,
                help_text='For each additional class of capacity, such as {"gpu": 4}.',
                verbose_name="maximum of other classes",
            ),
        ),
    ]
