"""Cleaning apart from the lease: how a deferred cleanup begins, and a trigger that refuses leases before it is done."""

from django.db import migrations, models

_TRIGGER = """
CREATE FUNCTION drydock_uncleaned() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM leases_debt WHERE resource_id = NEW.resource_id) THEN
        RAISE EXCEPTION 'resource % must be cleaned before it is leased', NEW.resource_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'resource_uncleaned';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER share_of_clean BEFORE INSERT ON leases_share FOR EACH ROW EXECUTE FUNCTION drydock_uncleaned();
"""
_UNDO = """
DROP TRIGGER share_of_clean ON leases_share;
DROP FUNCTION drydock_uncleaned();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0049_reported_hardware"),
    ]

    operations = [
        migrations.AddField(
            model_name="debt",
            name="phase",
            field=models.CharField(
                choices=[("deactivate", "Deactivate"), ("clean", "Clean")],
                db_default="deactivate",
                default="deactivate",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="debt",
            name="apart",
            field=models.BooleanField(db_default=False, default=False, verbose_name="cleaned apart"),
        ),
        migrations.RunSQL(_TRIGGER, _UNDO),
    ]
