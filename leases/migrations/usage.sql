-- What a lease costs is written with its share, and ends with it: no process has to be alive for it. `price` is null
-- for most resources, and then nothing is done here.
CREATE FUNCTION drydock_usage_begins(of_resource bigint, of_lease bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO leases_usage (lease_id, lease_name, owner_id, owner, group_id, "group", blueprint_id, blueprint, kind,
        resource_id, resource, type, offer, instance_type, place, market, price, part, started_at)
    SELECT l.id, l.name, l.owner_id, coalesce(u.{username}, ''), l.charged_group_id, coalesce(g.name, ''), b.id, b.name,
        b.kind, r.id, r.name, r.type, r.offer, left(coalesce(r.attributes ->> 'instance_type', ''), 255),
        left(coalesce(r.attributes ->> 'region', r.zone), 255), left(coalesce(r.attributes ->> 'market', ''), 63), r.price,
        CASE WHEN s.exclusive THEN 1 ELSE s.slots::float8 / greatest(r.total_slots, s.slots) END, clock_timestamp()
    FROM leases_share s JOIN leases_lease l ON l.id = s.lease_id JOIN leases_resource r ON r.id = s.resource_id
    JOIN blueprints_blueprint b ON b.id = r.blueprint_id LEFT JOIN {users} u ON u.{userkey} = l.owner_id
    LEFT JOIN auth_group g ON g.id = l.charged_group_id
    WHERE s.resource_id = of_resource AND (of_lease IS NULL OR s.lease_id = of_lease)
        AND r.price IS NOT NULL AND r.state <> 'pending'
    ON CONFLICT DO NOTHING
$$;

-- A resource that was being built is there, or its price is another one from now on.
CREATE FUNCTION drydock_resource_usage() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.price IS NOT NULL AND OLD.price IS DISTINCT FROM NEW.price THEN
        UPDATE leases_usage SET ended_at = greatest(started_at, clock_timestamp())
        WHERE resource_id = NEW.id AND ended_at IS NULL;
    END IF;
    PERFORM drydock_usage_begins(NEW.id, NULL);
    RETURN NULL;
END $$;

CREATE TRIGGER resource_usage AFTER UPDATE OF state, price ON leases_resource FOR EACH ROW
    WHEN (OLD.price IS DISTINCT FROM NEW.price
        OR (NEW.price IS NOT NULL AND OLD.state = 'pending' AND NEW.state = 'active'))
    EXECUTE FUNCTION drydock_resource_usage();

-- As in alone.sql, and: usage begins and ends with the share.
CREATE OR REPLACE FUNCTION drydock_share() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    asked record;
    costs boolean;
BEGIN
    IF TG_OP = 'DELETE' THEN
        UPDATE leases_resource SET
            used_slots = used_slots - OLD.slots, used_cpu_millicores = used_cpu_millicores - OLD.cpu_millicores,
            used_ram_mib = used_ram_mib - OLD.ram_mib, used_disk_mib = used_disk_mib - OLD.disk_mib,
            idle_since = CASE WHEN used_slots = OLD.slots THEN clock_timestamp() END, held_alone = FALSE
        WHERE id = OLD.resource_id RETURNING price IS NOT NULL INTO costs;
        IF costs THEN
            UPDATE leases_usage SET ended_at = greatest(started_at, clock_timestamp())
            WHERE lease_id = OLD.lease_id AND ended_at IS NULL;
        END IF;
        IF OLD.extra <> '{}' THEN
            UPDATE leases_capacity c SET used = c.used - x.n::bigint
            FROM jsonb_each_text(OLD.extra) AS x(name, n) WHERE c.resource_id = OLD.resource_id AND c.name = x.name;
        END IF;
        RETURN NULL;
    END IF;
    UPDATE leases_resource SET
        used_slots = used_slots + NEW.slots, used_cpu_millicores = used_cpu_millicores + NEW.cpu_millicores,
        used_ram_mib = used_ram_mib + NEW.ram_mib, used_disk_mib = used_disk_mib + NEW.disk_mib, idle_since = NULL,
        held_alone = NEW.exclusive
    WHERE id = NEW.resource_id AND NOT held_alone AND NOT (NEW.exclusive AND used_slots > 0)
        AND used_slots + NEW.slots <= total_slots AND used_cpu_millicores + NEW.cpu_millicores <= total_cpu_millicores
        AND used_ram_mib + NEW.ram_mib <= total_ram_mib AND used_disk_mib + NEW.disk_mib <= total_disk_mib
    RETURNING price IS NOT NULL AND state <> 'pending' INTO costs;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'resource % has no room for this share', NEW.resource_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'resource_capacity';
    END IF;
    IF costs THEN
        PERFORM drydock_usage_begins(NEW.resource_id, NEW.lease_id);
    END IF;
    IF NEW.extra <> '{}' THEN
        FOR asked IN SELECT * FROM jsonb_each_text(NEW.extra) AS x(name, n) ORDER BY 1 LOOP
            UPDATE leases_capacity SET used = used + asked.n::bigint
            WHERE resource_id = NEW.resource_id AND name = asked.name AND used + asked.n::bigint <= total;
            IF NOT FOUND THEN
                RAISE EXCEPTION 'resource % has not % of %', NEW.resource_id, asked.n, asked.name
                    USING ERRCODE = 'check_violation', CONSTRAINT = 'resource_capacity';
            END IF;
        END LOOP;
    END IF;
    RETURN NULL;
END $$;

-- What is held already costs from now on.
SELECT drydock_usage_begins(id, NULL) FROM leases_resource WHERE price IS NOT NULL AND used_slots > 0;
