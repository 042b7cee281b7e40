"""What was given when a resource was registered: a new column, filled for the hosts that there are."""

from django.db import migrations, models

_FILL = """
    UPDATE leases_resource r SET registration = jsonb_strip_nulls(jsonb_build_object(
        'name', r.name, 'address', r.facts -> 'address', 'port', r.facts -> 'port', 'user', r.facts -> 'user',
        'host_keys', r.facts -> 'host_keys', 'slots', r.total_slots, 'traits', to_jsonb(r.traits),
        'cpu_millicores', CASE WHEN r.facts -> 'given' ? 'cpu_millicores' THEN r.total_cpu_millicores END,
        'ram_mib', CASE WHEN r.facts -> 'given' ? 'ram_mib' THEN r.total_ram_mib END,
        'disk_mib', CASE WHEN r.facts -> 'given' ? 'disk_mib' THEN r.total_disk_mib END,
        'attributes', jsonb_strip_nulls(jsonb_build_object(
            'region', r.attributes -> 'region', 'zone', r.attributes -> 'zone'))))
    FROM blueprints_blueprint b
    WHERE b.id = r.blueprint_id AND b.kind = 'ssh_host' AND r.origin = 'registered' AND r.gone_at IS NULL
        AND r.facts ? 'address'"""


class Migration(migrations.Migration):
    dependencies = [("leases", "0024_suspect"), ("blueprints", "0006_locations")]

    operations = [
        migrations.AddField(
            model_name="resource",
            name="registration",
            field=models.JSONField(blank=True, db_default=models.Value({}, models.JSONField()), default=dict),
        ),
        migrations.RunSQL(_FILL, migrations.RunSQL.noop, elidable=True),
    ]
