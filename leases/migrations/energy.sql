-- As in usage.sql, and: a lease that holds all of a resource which measures its power is on record without a price too.
CREATE OR REPLACE FUNCTION drydock_usage_begins(of_resource bigint, of_lease bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO leases_usage (lease_id, lease_name, owner_id, owner, group_id, "group", blueprint_id, blueprint, kind,
        resource_id, resource, type, offer, instance_type, place, market, price, part, energy_wh, started_at)
    SELECT l.id, l.name, l.owner_id, coalesce(u.{username}, ''), l.charged_group_id, coalesce(g.name, ''), b.id, b.name,
        b.kind, r.id, r.name, r.type, r.offer, left(coalesce(r.attributes ->> 'instance_type', ''), 255),
        left(coalesce(r.attributes ->> 'region', r.zone), 255), left(coalesce(r.attributes ->> 'market', ''), 63),
        coalesce(r.price, 0),
        CASE WHEN s.exclusive THEN 1 ELSE s.slots::float8 / greatest(r.total_slots, s.slots) END,
        CASE WHEN r.metered AND w.whole THEN 0 END, clock_timestamp()
    FROM leases_share s JOIN leases_lease l ON l.id = s.lease_id JOIN leases_resource r ON r.id = s.resource_id
    CROSS JOIN LATERAL (SELECT s.exclusive OR (s.slots > 0 AND s.slots >= r.total_slots) AS whole) w
    JOIN blueprints_blueprint b ON b.id = r.blueprint_id LEFT JOIN {users} u ON u.{userkey} = l.owner_id
    LEFT JOIN auth_group g ON g.id = l.charged_group_id
    WHERE s.resource_id = of_resource AND (of_lease IS NULL OR s.lease_id = of_lease)
        AND (r.price IS NOT NULL OR (r.metered AND w.whole)) AND r.state <> 'pending'
    ON CONFLICT DO NOTHING
$$;

-- As in usage_until_gone.sql, and: energy is on record from the first report of the power that is drawn.
CREATE OR REPLACE FUNCTION drydock_resource_usage() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.price IS DISTINCT FROM NEW.price AND (OLD.price IS NOT NULL OR OLD.metered))
        OR (OLD.gone_at IS NULL AND NEW.gone_at IS NOT NULL) THEN
        UPDATE leases_usage SET ended_at = greatest(started_at, clock_timestamp())
        WHERE resource_id = NEW.id AND ended_at IS NULL;
    END IF;
    IF NEW.metered AND NOT OLD.metered THEN
        UPDATE leases_usage SET energy_wh = 0
        WHERE resource_id = NEW.id AND ended_at IS NULL AND part = 1 AND energy_wh IS NULL;
    END IF;
    IF OLD.state = 'active' AND NEW.state IN ('released', 'broken') THEN
        PERFORM drydock_usage_goes_on(NEW.id);
    ELSIF NEW.gone_at IS NULL THEN
        PERFORM drydock_usage_begins(NEW.id, NULL);
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER resource_usage AFTER UPDATE OF state, price, gone_at, metered ON leases_resource FOR EACH ROW
    WHEN (OLD.price IS DISTINCT FROM NEW.price OR OLD.metered IS DISTINCT FROM NEW.metered
        OR ((NEW.price IS NOT NULL OR NEW.metered) AND (
            (OLD.state = 'pending' AND NEW.state = 'active')
            OR (OLD.state = 'active' AND NEW.state IN ('released', 'broken'))
            OR (OLD.gone_at IS NULL AND NEW.gone_at IS NOT NULL))))
    EXECUTE FUNCTION drydock_resource_usage();

-- The energy between two reports of the power that a resource draws, which is taken to change evenly between them. A
-- lease gets the energy of the time in which it held all of the resource. Nothing is computed if the clock went back, or
-- if the reports are too far apart: what the resource drew meanwhile is unknown.
CREATE OR REPLACE FUNCTION drydock_energy() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before record;
    seconds float8;
BEGIN
    UPDATE leases_resource SET metered = TRUE WHERE id = NEW.resource_id AND NOT metered;
    SELECT r.at, r.power_watts AS watts INTO before FROM leases_sensorreport r
    WHERE r.resource_id = NEW.resource_id AND r.id < NEW.id AND r.power_watts IS NOT NULL ORDER BY r.id DESC LIMIT 1;
    seconds := extract(epoch FROM NEW.at - before.at);
    IF seconds IS NULL OR seconds <= 0 OR seconds > NEW.longest_gap THEN
        RETURN NULL;
    END IF;
    UPDATE leases_usage u SET energy_wh = u.energy_wh + (held.until - held.since) / 3600
        * (before.watts + (NEW.power_watts - before.watts) * (held.since + held.until) / 2 / seconds)
    FROM (
        SELECT x.id, extract(epoch FROM greatest(x.started_at, before.at) - before.at)::float8 AS since,
            extract(epoch FROM least(coalesce(x.ended_at, NEW.at), NEW.at) - before.at)::float8 AS until
        FROM leases_usage x WHERE x.resource_id = NEW.resource_id AND x.energy_wh IS NOT NULL
            AND x.started_at < NEW.at AND (x.ended_at IS NULL OR x.ended_at > before.at)) held
    WHERE u.id = held.id AND held.until > held.since;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER sensor_energy AFTER INSERT ON leases_sensorreport FOR EACH ROW
    WHEN (NEW.power_watts IS NOT NULL) EXECUTE FUNCTION drydock_energy();
