-- As in tree.sql, and: a resource that is built on another one, its carrier, is part of it and holds a lease on it for
-- life. That lease neither closes the carrier to the resource itself, nor keeps others from the whole around both: what
-- counts are the leases on the resource that is built there.

CREATE OR REPLACE FUNCTION drydock_keeps(holder bigint, path bigint[]) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM leases_lease h WHERE h.id = holder AND h.for_resource_id = ANY(path))
$$;
COMMENT ON FUNCTION drydock_keeps(bigint, bigint[]) IS 'Whether a lease is held by a resource on this path.';

CREATE OR REPLACE FUNCTION drydock_closes_to(r leases_resource, path bigint[]) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT (r.whole_lease_id IS NOT NULL AND NOT drydock_keeps(r.whole_lease_id, path)) OR r.reserved_for_id IS NOT NULL
        OR r.drained OR r.quarantined OR r.in_maintenance OR r.suspect_since IS NOT NULL
        OR r.state NOT IN ('pending', 'active')
$$;
COMMENT ON FUNCTION drydock_closes_to(leases_resource, bigint[]) IS
    'Whether a resource closes the first of this path, which leads up to it, to new leases of others.';

CREATE OR REPLACE FUNCTION drydock_permits(holder bigint, path bigint[], lease bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT drydock_related(holder, lease) OR drydock_keeps(holder, path)
        OR EXISTS (SELECT FROM leases_lease c JOIN leases_resource d ON d.id = c.for_resource_id
            WHERE c.id = lease AND d.part_of_id = c.resource_id AND d.state <> 'pending')
$$;

CREATE OR REPLACE FUNCTION drydock_obstacle(resource bigint, takes_all boolean) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT to_jsonb(x) FROM (
        SELECT a.name, TRUE AS above, u.n, w.id AS lease, w.owner_id AS owner,
            CASE WHEN w.id IS NOT NULL THEN 'held whole' WHEN a.drained THEN 'drained'
                WHEN a.quarantined THEN 'in quarantine' WHEN a.in_maintenance THEN 'in maintenance'
                WHEN a.suspect_since IS NOT NULL THEN 'not answering' WHEN a.reserved_for_id IS NOT NULL THEN 'reserved'
                ELSE a.state END AS what
        FROM drydock_above(resource) u JOIN leases_resource a ON a.id = u.id
        CROSS JOIN LATERAL (SELECT resource || ARRAY(
            SELECT v.id FROM drydock_above(resource) v WHERE v.n < u.n) AS path) p
        LEFT JOIN leases_lease w ON w.id = a.whole_lease_id AND NOT drydock_keeps(w.id, p.path)
        WHERE drydock_closes_to(a, p.path)
        UNION ALL
        SELECT d.name, FALSE, cardinality(b.path), s.id, s.owner_id,
            CASE WHEN s.id IS NOT NULL THEN 'leased' WHEN d.drained THEN 'drained'
                WHEN d.quarantined THEN 'in quarantine' WHEN d.in_maintenance THEN 'in maintenance'
                ELSE 'being removed' END
        FROM drydock_below(resource) b JOIN leases_resource d ON d.id = b.id
        LEFT JOIN LATERAL (SELECT l.id, l.owner_id FROM leases_share x JOIN leases_lease l ON l.id = x.lease_id
            WHERE x.resource_id = d.id AND NOT EXISTS (SELECT FROM leases_resource k
                WHERE k.id = l.for_resource_id AND k.part_of_id = d.id AND k.state <> 'pending')) s ON TRUE
        WHERE takes_all AND (s.id IS NOT NULL OR drydock_obstructs(d) > 0 OR (
            d.state NOT IN ('pending', 'active') AND d.gone_at IS NULL AND EXISTS (
                SELECT FROM leases_lease c WHERE c.for_resource_id = d.id AND c.resource_id = d.part_of_id
                    AND c.state IN ('acquired', 'active'))))) x
    ORDER BY above DESC, n, name, lease LIMIT 1
$$;

CREATE OR REPLACE FUNCTION drydock_spread(top bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    closing bigint[] := '{}';
    spared bigint[] := '{}';
    way bigint[] := '{}';
    keeper bigint;
    above leases_resource;
    parent bigint := top;
    skipped boolean;
BEGIN
    WHILE parent IS NOT NULL LOOP
        SELECT * INTO above FROM leases_resource WHERE id = parent FOR NO KEY UPDATE;
        IF drydock_closes_to(above, way) THEN
            SELECT l.for_resource_id INTO keeper FROM leases_lease l WHERE l.id = above.whole_lease_id;
            closing := closing || parent;
            spared := spared || CASE WHEN keeper IS NULL OR drydock_closes_to(above, way || keeper) THEN 0
                ELSE keeper END;
        END IF;
        way := way || parent;
        parent := above.part_of_id;
    END LOOP;
    WITH wanted AS (
        SELECT r.id, ARRAY(SELECT p.id FROM unnest(b.path[2:]) WITH ORDINALITY p(id, n)
            WHERE p.id = ANY(r.closed_by) ORDER BY p.n)
            || ARRAY(SELECT c.id FROM unnest(closing, spared) WITH ORDINALITY c(id, spared, n)
            WHERE c.spared <> ALL(b.path) ORDER BY c.n) AS by
        FROM drydock_below(top) b JOIN leases_resource r ON r.id = b.id),
    wrong AS (SELECT w.* FROM wanted w JOIN leases_resource r ON r.id = w.id WHERE r.closed_by <> w.by),
    free AS (
        SELECT r.id, w.by FROM leases_resource r JOIN wrong w ON w.id = r.id
        ORDER BY r.id FOR NO KEY UPDATE OF r SKIP LOCKED),
    spread AS (
        UPDATE leases_resource r SET closed_by = f.by FROM free f WHERE r.id = f.id RETURNING 1)
    SELECT (SELECT count(*) FROM wrong) > (SELECT count(*) FROM spread) INTO skipped;
    UPDATE leases_resource SET tree_stale = skipped WHERE id = top AND tree_stale <> skipped;
END $$;

CREATE OR REPLACE FUNCTION drydock_join() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    n int := drydock_obstructs(NEW);
    height int := 0;
    shared boolean := FALSE;
    way bigint[] := ARRAY[NEW.id];
    closing bigint[] := '{}';
    parent bigint := NEW.part_of_id;
    above leases_resource;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        SELECT count(*) INTO n FROM leases_share WHERE resource_id = NEW.id;
        shared := n > 0 OR NEW.busy_below > 0;
        n := n + NEW.busy_below + drydock_obstructs(OLD);
        SELECT coalesce(max(cardinality(b.path)), 0) INTO height FROM drydock_below(NEW.id) b;
        UPDATE leases_resource SET child_count = child_count - 1 WHERE id = OLD.part_of_id;
        PERFORM drydock_climb(NEW.id, OLD.part_of_id, -n, NULL);
        NEW.tree_stale := NEW.child_count > 0;
    END IF;
    WHILE parent IS NOT NULL LOOP
        IF parent = ANY(way) THEN
            RAISE EXCEPTION 'resource % cannot be part of itself', NEW.id
                USING ERRCODE = 'check_violation', CONSTRAINT = 'resource_tree';
        END IF;
        UPDATE leases_resource SET busy_below = busy_below + n,
            child_count = child_count + (id = NEW.part_of_id)::int
        WHERE id = parent RETURNING * INTO above;
        EXIT WHEN NOT FOUND;
        IF shared AND above.whole_lease_id IS NOT NULL AND EXISTS (
            SELECT FROM (SELECT NEW.id AS id, way AS path
                UNION ALL SELECT b.id, b.path || way FROM drydock_below(NEW.id) b) t
            JOIN leases_share s ON s.resource_id = t.id
            WHERE NOT drydock_permits(above.whole_lease_id, t.path, s.lease_id)) THEN
            RAISE EXCEPTION 'resource % is leased and cannot become part of resource %, which lease % holds whole',
                NEW.id, parent, above.whole_lease_id USING ERRCODE = 'check_violation', CONSTRAINT = 'resource_tree';
        END IF;
        IF drydock_closes_to(above, way) THEN
            closing := closing || parent;
        END IF;
        way := way || parent;
        parent := above.part_of_id;
    END LOOP;
    IF cardinality(way) - 1 + height > 4 THEN
        RAISE EXCEPTION 'resource % would be deeper than 4 levels below its topmost resource', NEW.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'resource_tree';
    END IF;
    NEW.closed_by := closing;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION drydock_tree() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    was leases_resource := OLD;
    becomes leases_resource := NEW;
BEGIN
    IF TG_OP = 'DELETE' THEN
        UPDATE leases_resource SET child_count = child_count - 1 WHERE id = OLD.part_of_id;
        IF drydock_obstructs(OLD) > 0 THEN
            PERFORM drydock_climb(OLD.id, OLD.part_of_id, -1, NULL);
        END IF;
        RETURN NULL;
    END IF;
    -- What is carried by a resource notes whatever closes it besides the lease on its carrier.
    was.whole_lease_id := NULL;
    becomes.whole_lease_id := NULL;
    IF drydock_obstructs(NEW) <> drydock_obstructs(OLD) AND NEW.part_of_id IS NOT NULL THEN
        PERFORM drydock_climb(NEW.id, NEW.part_of_id, drydock_obstructs(NEW) - drydock_obstructs(OLD), NULL);
    END IF;
    IF NEW.child_count > 0 AND (OLD.part_of_id IS DISTINCT FROM NEW.part_of_id
        OR drydock_closes(NEW) <> drydock_closes(OLD) OR drydock_closes(becomes) <> drydock_closes(was)) THEN
        PERFORM drydock_spread(NEW.id);
    END IF;
    RETURN NULL;
END $$;
