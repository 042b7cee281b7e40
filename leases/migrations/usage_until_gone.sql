-- What a machine costs from the beginning of its destruction until it is gone is the last lease's, once that is over:
-- not where the machine was kept idle and given up later, for that is the installation's decision.
CREATE OR REPLACE FUNCTION drydock_usage_goes_on(of_resource bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO leases_usage (lease_id, lease_name, owner_id, owner, group_id, "group", blueprint_id, blueprint, kind,
        resource_id, resource, type, offer, instance_type, place, market, price, part, started_at)
    SELECT l.id, l.name, l.owner_id, coalesce(u.{username}, ''), l.charged_group_id, coalesce(g.name, ''), b.id, b.name,
        b.kind, r.id, r.name, r.type, r.offer, left(coalesce(r.attributes ->> 'instance_type', ''), 255),
        left(coalesce(r.attributes ->> 'region', r.zone), 255), left(coalesce(r.attributes ->> 'market', ''), 63), r.price,
        CASE WHEN l.exclusive THEN 1 ELSE least(l.slots::float8 / greatest(r.total_slots, 1), 1) END, clock_timestamp()
    FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id
    JOIN LATERAL (SELECT * FROM leases_lease x WHERE x.resource_id = r.id AND x.acquired_at IS NOT NULL
        ORDER BY x.acquired_at DESC, x.id DESC LIMIT 1) l ON l.state IN ('destroyed', 'broken')
    LEFT JOIN {users} u ON u.{userkey} = l.owner_id LEFT JOIN auth_group g ON g.id = l.charged_group_id
    WHERE r.id = of_resource AND r.price IS NOT NULL AND r.gone_at IS NULL
        AND r.reason NOT IN ('idle', 'over_limit', 'over_budget', 'reclaimed')
    ON CONFLICT DO NOTHING
$$;

CREATE OR REPLACE FUNCTION drydock_resource_usage() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.price IS NOT NULL AND OLD.price IS DISTINCT FROM NEW.price)
        OR (OLD.gone_at IS NULL AND NEW.gone_at IS NOT NULL) THEN
        UPDATE leases_usage SET ended_at = greatest(started_at, clock_timestamp())
        WHERE resource_id = NEW.id AND ended_at IS NULL;
    END IF;
    IF OLD.state = 'active' AND NEW.state IN ('released', 'broken') THEN
        PERFORM drydock_usage_goes_on(NEW.id);
    ELSIF NEW.gone_at IS NULL THEN
        PERFORM drydock_usage_begins(NEW.id, NULL);
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER resource_usage AFTER UPDATE OF state, price, gone_at ON leases_resource FOR EACH ROW
    WHEN (OLD.price IS DISTINCT FROM NEW.price OR (NEW.price IS NOT NULL AND (
        (OLD.state = 'pending' AND NEW.state = 'active')
        OR (OLD.state = 'active' AND NEW.state IN ('released', 'broken'))
        OR (OLD.gone_at IS NULL AND NEW.gone_at IS NOT NULL))))
    EXECUTE FUNCTION drydock_resource_usage();
