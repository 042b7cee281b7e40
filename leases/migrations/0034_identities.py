"""Identities of resources, unique within the installation among the resources that are not gone."""

import django.db.models.deletion
from django.db import migrations, models

_TRIGGERS = """
    CREATE FUNCTION drydock_forget_identities() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        DELETE FROM leases_resourceidentity WHERE resource_id = NEW.id;
        RETURN NULL;
    END $$;
    CREATE TRIGGER resource_identities AFTER UPDATE OF gone_at ON leases_resource
        FOR EACH ROW WHEN (OLD.gone_at IS NULL AND NEW.gone_at IS NOT NULL)
        EXECUTE FUNCTION drydock_forget_identities();
    CREATE FUNCTION drydock_identity_of_existing() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM FROM leases_resource WHERE id = NEW.resource_id AND gone_at IS NULL FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'resource % is gone and has no identities', NEW.resource_id USING ERRCODE = '23514';
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER identity_of_existing BEFORE INSERT OR UPDATE ON leases_resourceidentity
        FOR EACH ROW EXECUTE FUNCTION drydock_identity_of_existing();"""
_NO_TRIGGERS = """
    DROP TRIGGER resource_identities ON leases_resource;
    DROP TRIGGER identity_of_existing ON leases_resourceidentity;
    DROP FUNCTION drydock_forget_identities();
    DROP FUNCTION drydock_identity_of_existing();"""


class Migration(migrations.Migration):
    dependencies = [
        ("leases", "0033_findings"),
    ]

    operations = [
        migrations.AddField(
            "sync",
            "conflicts",
            models.JSONField(blank=True, db_default=models.Value([], models.JSONField()), default=list),
        ),
        migrations.CreateModel(
            name="ResourceIdentity",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("namespace", models.CharField(max_length=63)),
                ("value", models.CharField(max_length=255)),
                (
                    "resource",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="identities",
                        to="leases.resource",
                    ),
                ),
            ],
            options={
                "verbose_name": "identity",
                "verbose_name_plural": "identities",
                "constraints": [models.UniqueConstraint(fields=("namespace", "value"), name="thing_once")],
            },
        ),
        migrations.RunSQL(_TRIGGERS, _NO_TRIGGERS),
    ]
