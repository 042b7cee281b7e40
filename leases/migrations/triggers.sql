-- What the database itself promises, whatever the code does: no state changes without its event, no transition
-- outside the table, no capacity given twice, no `used` that differs from the shares.

CREATE FUNCTION drydock_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', TG_ARGV[1] USING ERRCODE = 'check_violation', CONSTRAINT = TG_ARGV[0];
END $$;

CREATE FUNCTION drydock_lease_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO leases_event (at, kind, lease_id, resource_id, to_state, reason, message, actor)
        VALUES (NEW.since, 'lease.' || NEW.state, NEW.id, NEW.resource_id, NEW.state, NEW.reason, NEW.message, NEW.actor);
        RETURN NULL;
    END IF;
    IF NOT (OLD.state || '>' || NEW.state) = ANY (TG_ARGV[0]::text[]) THEN
        RAISE EXCEPTION 'a lease does not go from % to %', OLD.state, NEW.state
            USING ERRCODE = 'check_violation', CONSTRAINT = 'lease_transition';
    END IF;
    NEW.since := clock_timestamp();
    INSERT INTO leases_event (at, kind, lease_id, resource_id, from_state, to_state, reason, message, actor, duration)
    VALUES (NEW.since, 'lease.' || NEW.state, NEW.id, coalesce(NEW.resource_id, OLD.resource_id), OLD.state, NEW.state,
            NEW.reason, NEW.message, NEW.actor, NEW.since - OLD.since);
    RETURN NEW;
END $$;

CREATE FUNCTION drydock_resource_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO leases_event (at, kind, resource_id, blueprint_id, to_state, reason, message, actor)
        VALUES (NEW.since, 'resource.' || NEW.state, NEW.id, NEW.blueprint_id, NEW.state, NEW.reason, NEW.message, NEW.actor);
        RETURN NULL;
    END IF;
    IF NOT (OLD.state || '>' || NEW.state) = ANY (TG_ARGV[0]::text[]) THEN
        RAISE EXCEPTION 'a resource does not go from % to %', OLD.state, NEW.state
            USING ERRCODE = 'check_violation', CONSTRAINT = 'resource_transition';
    END IF;
    NEW.since := clock_timestamp();
    INSERT INTO leases_event (at, kind, resource_id, blueprint_id, from_state, to_state, reason, message, actor, duration)
    VALUES (NEW.since, 'resource.' || NEW.state, NEW.id, NEW.blueprint_id, OLD.state, NEW.state,
            NEW.reason, NEW.message, NEW.actor, NEW.since - OLD.since);
    RETURN NEW;
END $$;

CREATE TRIGGER lease_requested AFTER INSERT ON leases_lease FOR EACH ROW EXECUTE FUNCTION drydock_lease_event();
CREATE TRIGGER lease_transition BEFORE UPDATE OF state ON leases_lease FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state)
    EXECUTE FUNCTION drydock_lease_event('{pending>acquired,pending>released,pending>broken,acquired>active,acquired>pending,acquired>released,acquired>broken,active>released,active>broken,released>destroyed}');

CREATE TRIGGER resource_drafted AFTER INSERT ON leases_resource FOR EACH ROW EXECUTE FUNCTION drydock_resource_event();
CREATE TRIGGER resource_transition BEFORE UPDATE OF state ON leases_resource FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state)
    EXECUTE FUNCTION drydock_resource_event('{pending>active,pending>released,pending>broken,active>released,active>broken,released>destroyed}');

CREATE FUNCTION drydock_share() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    asked record;
BEGIN
    IF TG_OP = 'DELETE' THEN
        UPDATE leases_resource SET
            used_slots = used_slots - OLD.slots, used_cpu_millicores = used_cpu_millicores - OLD.cpu_millicores,
            used_ram_mib = used_ram_mib - OLD.ram_mib, used_disk_mib = used_disk_mib - OLD.disk_mib,
            idle_since = CASE WHEN used_slots = OLD.slots THEN clock_timestamp() END
        WHERE id = OLD.resource_id;
        IF OLD.extra <> '{}' THEN
            UPDATE leases_capacity c SET used = c.used - x.n::bigint
            FROM jsonb_each_text(OLD.extra) AS x(name, n) WHERE c.resource_id = OLD.resource_id AND c.name = x.name;
        END IF;
        RETURN NULL;
    END IF;
    UPDATE leases_resource SET
        used_slots = used_slots + NEW.slots, used_cpu_millicores = used_cpu_millicores + NEW.cpu_millicores,
        used_ram_mib = used_ram_mib + NEW.ram_mib, used_disk_mib = used_disk_mib + NEW.disk_mib, idle_since = NULL
    WHERE id = NEW.resource_id
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

CREATE TRIGGER share_taken AFTER INSERT ON leases_share FOR EACH ROW EXECUTE FUNCTION drydock_share();
CREATE TRIGGER share_returned AFTER DELETE ON leases_share FOR EACH ROW EXECUTE FUNCTION drydock_share();
CREATE TRIGGER share_is_fixed BEFORE UPDATE ON leases_share FOR EACH ROW
    EXECUTE FUNCTION drydock_refuse('share_is_fixed', 'a share is inserted and deleted, never changed');

CREATE TRIGGER resource_used BEFORE UPDATE OF used_slots, used_cpu_millicores, used_ram_mib, used_disk_mib
    ON leases_resource FOR EACH ROW
    WHEN (pg_trigger_depth() = 0 AND (NEW.used_slots, NEW.used_cpu_millicores, NEW.used_ram_mib, NEW.used_disk_mib)
        IS DISTINCT FROM (OLD.used_slots, OLD.used_cpu_millicores, OLD.used_ram_mib, OLD.used_disk_mib))
    EXECUTE FUNCTION drydock_refuse('resource_used', 'what is used of a resource changes only with its shares');
CREATE TRIGGER capacity_used BEFORE UPDATE OF used ON leases_capacity FOR EACH ROW
    WHEN (pg_trigger_depth() = 0 AND NEW.used IS DISTINCT FROM OLD.used)
    EXECUTE FUNCTION drydock_refuse('resource_used', 'what is used of a resource changes only with its shares');
CREATE TRIGGER resource_unused BEFORE INSERT ON leases_resource FOR EACH ROW
    WHEN (NEW.used_slots <> 0 OR NEW.used_cpu_millicores <> 0 OR NEW.used_ram_mib <> 0 OR NEW.used_disk_mib <> 0)
    EXECUTE FUNCTION drydock_refuse('resource_used', 'a new resource is unused');

ALTER TABLE leases_resource SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);
ALTER TABLE leases_lease SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
ALTER TABLE leases_run SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);
