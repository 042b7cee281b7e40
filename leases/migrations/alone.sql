-- As in triggers.sql, and: whoever holds a resource alone shares nothing of it, also of what it grows by.
CREATE OR REPLACE FUNCTION drydock_share() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    asked record;
BEGIN
    IF TG_OP = 'DELETE' THEN
        UPDATE leases_resource SET
            used_slots = used_slots - OLD.slots, used_cpu_millicores = used_cpu_millicores - OLD.cpu_millicores,
            used_ram_mib = used_ram_mib - OLD.ram_mib, used_disk_mib = used_disk_mib - OLD.disk_mib,
            idle_since = CASE WHEN used_slots = OLD.slots THEN clock_timestamp() END, held_alone = FALSE
        WHERE id = OLD.resource_id;
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
        AND used_ram_mib + NEW.ram_mib <= total_ram_mib AND used_disk_mib + NEW.disk_mib <= total_disk_mib;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'resource % has no room for this share', NEW.resource_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'resource_capacity';
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
