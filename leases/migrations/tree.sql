-- The resource tree: a lease on a whole and leases on its parts exclude each other, unless they belong together.
--
-- Every change locks upwards, from a resource to its ancestors, and may wait there. Nothing waits downwards: what is
-- below is updated with SKIP LOCKED, and `tree_stale` marks a resource below which something was skipped. Correctness
-- rests on the locks on ancestors; `closed_by` only tells a search what it need not try.

CREATE OR REPLACE FUNCTION drydock_closes(r leases_resource) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT r.whole_lease_id IS NOT NULL OR r.reserved_for_id IS NOT NULL OR r.drained OR r.quarantined
        OR r.in_maintenance OR r.suspect_since IS NOT NULL OR r.state NOT IN ('pending', 'active')
$$;
COMMENT ON FUNCTION drydock_closes(leases_resource) IS
    'Whether a resource closes everything below it to new leases of others.';

CREATE OR REPLACE FUNCTION drydock_obstructs(r leases_resource) RETURNS int LANGUAGE sql IMMUTABLE AS $$
    SELECT ((r.drained OR r.quarantined OR r.in_maintenance) AND r.gone_at IS NULL)::int
$$;
COMMENT ON FUNCTION drydock_obstructs(leases_resource) IS
    '1 if a resource, apart from its shares, prevents leases on a whole that it is part of; otherwise 0.';

-- In PL/pgSQL, so that the planner knows how few rows it returns. It would inline a function in SQL, expect thousands,
-- and read all resources in joins with it.
CREATE OR REPLACE FUNCTION drydock_below(top bigint) RETURNS TABLE (id bigint, path bigint[])
LANGUAGE plpgsql STABLE ROWS 8 AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY WITH RECURSIVE below AS (
        SELECT r.id, ARRAY[r.id] AS path FROM leases_resource r WHERE r.part_of_id = top
        UNION ALL
        SELECT r.id, r.id || b.path FROM below b JOIN leases_resource r ON r.part_of_id = b.id
        WHERE cardinality(b.path) < 5)
    SELECT * FROM below;
END $$;
COMMENT ON FUNCTION drydock_below(bigint) IS
    'Everything below a resource, each with the path that leads up to it: the descendant first, `top` left out.';

CREATE OR REPLACE FUNCTION drydock_above(part bigint) RETURNS TABLE (id bigint, n int)
LANGUAGE plpgsql STABLE ROWS 2 AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY WITH RECURSIVE above AS (
        SELECT r.part_of_id AS id, 1 AS n FROM leases_resource r WHERE r.id = part AND r.part_of_id IS NOT NULL
        UNION ALL
        SELECT r.part_of_id, a.n + 1 FROM above a JOIN leases_resource r ON r.id = a.id
        WHERE r.part_of_id IS NOT NULL AND a.n < 5)
    SELECT * FROM above;
END $$;
COMMENT ON FUNCTION drydock_above(bigint) IS 'What a resource is part of, from its parent (1) to the topmost.';

CREATE OR REPLACE FUNCTION drydock_related(one bigint, other bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT one = other OR (
        SELECT count(*) = 2 AND count(DISTINCT coalesce('group ' || coalesce(t.group_id, l.group_id),
            'lease ' || coalesce(l.root_id, l.id))) = 1
        FROM leases_lease l LEFT JOIN leases_lease t ON t.id = l.root_id WHERE l.id IN (one, other))
$$;
COMMENT ON FUNCTION drydock_related(bigint, bigint) IS
    'Whether two leases belong together: by their group, or because one is needed, directly or not, for the other.';

CREATE OR REPLACE FUNCTION drydock_permits(holder bigint, path bigint[], lease bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT drydock_related(holder, lease)
        OR EXISTS (SELECT FROM leases_lease h WHERE h.id = holder AND h.for_resource_id = ANY(path))
$$;
COMMENT ON FUNCTION drydock_permits(bigint, bigint[], bigint) IS
    'Whether a lease that holds a whole permits another lease on a resource below it. `path` leads from that resource '
    'up to the whole, which it leaves out.';

-- The nearest relative that prevents leases on a resource, as JSON, or null: its name, what it is, and the lease that
-- holds it. Looks below only if the lease would take all of the resource.
CREATE OR REPLACE FUNCTION drydock_obstacle(resource bigint, takes_all boolean) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT to_jsonb(x) FROM (
        SELECT a.name, TRUE AS above, u.n, a.whole_lease_id AS lease, l.owner_id AS owner,
            CASE WHEN a.whole_lease_id IS NOT NULL THEN 'held whole' WHEN a.drained THEN 'drained'
                WHEN a.quarantined THEN 'in quarantine' WHEN a.in_maintenance THEN 'in maintenance'
                WHEN a.suspect_since IS NOT NULL THEN 'not answering' WHEN a.reserved_for_id IS NOT NULL THEN 'reserved'
                ELSE a.state END AS what
        FROM drydock_above(resource) u JOIN leases_resource a ON a.id = u.id
        LEFT JOIN leases_lease l ON l.id = a.whole_lease_id WHERE drydock_closes(a)
        UNION ALL
        SELECT d.name, FALSE, cardinality(b.path), s.lease_id, l.owner_id,
            CASE WHEN s.lease_id IS NOT NULL THEN 'leased' WHEN d.drained THEN 'drained'
                WHEN d.quarantined THEN 'in quarantine' ELSE 'in maintenance' END
        FROM drydock_below(resource) b JOIN leases_resource d ON d.id = b.id
        LEFT JOIN leases_share s ON s.resource_id = d.id LEFT JOIN leases_lease l ON l.id = s.lease_id
        WHERE takes_all AND (s.lease_id IS NOT NULL OR drydock_obstructs(d) > 0)) x
    ORDER BY above DESC, n, name, lease LIMIT 1
$$;

-- Adds `n` to `busy_below` of a resource's ancestors. If `lease` is not null, refuses if another lease holds one of
-- them whole and does not permit it.
CREATE OR REPLACE FUNCTION drydock_climb(resource bigint, parent bigint, n int, lease bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    path bigint[] := ARRAY[resource];
    above leases_resource;
BEGIN
    WHILE parent IS NOT NULL LOOP
        UPDATE leases_resource SET busy_below = busy_below + n WHERE id = parent RETURNING * INTO above;
        IF lease IS NOT NULL AND above.whole_lease_id IS NOT NULL
            AND NOT drydock_permits(above.whole_lease_id, path, lease) THEN
            RAISE EXCEPTION 'resource % is part of resource %, which lease % holds whole', resource, parent,
                above.whole_lease_id USING ERRCODE = 'check_violation', CONSTRAINT = 'resource_tree';
        END IF;
        path := path || parent;
        parent := above.part_of_id;
    END LOOP;
END $$;

-- Sets `closed_by` of everything below a resource. Locks the resource and its ancestors, so that none of them changes
-- meanwhile. Skips what others have locked, and marks the resource for the sweep.
CREATE OR REPLACE FUNCTION drydock_spread(top bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    closing bigint[] := '{}';
    above leases_resource;
    parent bigint := top;
    skipped boolean;
BEGIN
    WHILE parent IS NOT NULL LOOP
        SELECT * INTO above FROM leases_resource WHERE id = parent FOR NO KEY UPDATE;
        IF drydock_closes(above) THEN
            closing := closing || parent;
        END IF;
        parent := above.part_of_id;
    END LOOP;
    WITH wanted AS (
        SELECT r.id, ARRAY(SELECT p.id FROM unnest(b.path[2:]) WITH ORDINALITY p(id, n)
            WHERE p.id = ANY(r.closed_by) ORDER BY p.n) || closing AS by
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

-- Sets everything that a resource knows of its tree from the rows themselves. Used for rows that were there before
-- these columns, and by the sweep.
CREATE OR REPLACE FUNCTION drydock_recount() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE leases_resource r SET
        child_count = (SELECT count(*) FROM leases_resource c WHERE c.part_of_id = r.id),
        busy_below = (
            SELECT count(s.lease_id) FROM drydock_below(r.id) b JOIN leases_share s ON s.resource_id = b.id)
            + (SELECT coalesce(sum(drydock_obstructs(d)), 0)
               FROM drydock_below(r.id) b JOIN leases_resource d ON d.id = b.id),
        whole_lease_id = coalesce(r.whole_lease_id, (
            SELECT s.lease_id FROM leases_share s WHERE s.resource_id = r.id
                AND (s.exclusive OR (s.slots > 0 AND s.slots >= r.total_slots)) LIMIT 1))
    WHERE r.id = NEW.id;
    IF EXISTS (SELECT FROM leases_resource WHERE part_of_id = NEW.id) THEN
        PERFORM drydock_spread(NEW.id);
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER resource_recounted AFTER UPDATE OF tree_stale ON leases_resource FOR EACH ROW
    WHEN (OLD.tree_stale AND NOT NEW.tree_stale AND pg_trigger_depth() = 0) EXECUTE FUNCTION drydock_recount();

-- A resource appears below another, or moves there with everything below it.
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
        IF drydock_closes(above) THEN
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

CREATE OR REPLACE TRIGGER resource_joins BEFORE INSERT ON leases_resource FOR EACH ROW
    WHEN (NEW.part_of_id IS NOT NULL) EXECUTE FUNCTION drydock_join();
CREATE OR REPLACE TRIGGER resource_moves BEFORE UPDATE OF part_of_id ON leases_resource FOR EACH ROW
    WHEN (OLD.part_of_id IS DISTINCT FROM NEW.part_of_id) EXECUTE FUNCTION drydock_join();

-- A resource has moved with everything below it, closes or opens what is below it, or is deleted.
CREATE OR REPLACE FUNCTION drydock_tree() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        UPDATE leases_resource SET child_count = child_count - 1 WHERE id = OLD.part_of_id;
        IF drydock_obstructs(OLD) > 0 THEN
            PERFORM drydock_climb(OLD.id, OLD.part_of_id, -1, NULL);
        END IF;
        RETURN NULL;
    END IF;
    IF drydock_obstructs(NEW) <> drydock_obstructs(OLD) AND NEW.part_of_id IS NOT NULL THEN
        PERFORM drydock_climb(NEW.id, NEW.part_of_id, drydock_obstructs(NEW) - drydock_obstructs(OLD), NULL);
    END IF;
    IF NEW.child_count > 0 AND (OLD.part_of_id IS DISTINCT FROM NEW.part_of_id
        OR drydock_closes(NEW) <> drydock_closes(OLD)) THEN
        PERFORM drydock_spread(NEW.id);
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER resource_tree AFTER UPDATE OF part_of_id, whole_lease_id, reserved_for_id, drained, quarantined,
    in_maintenance, suspect_since, state, gone_at ON leases_resource FOR EACH ROW
    WHEN ((NEW.child_count > 0 OR NEW.part_of_id IS NOT NULL) AND (
        OLD.part_of_id, OLD.whole_lease_id, OLD.reserved_for_id, OLD.drained, OLD.quarantined, OLD.in_maintenance,
        OLD.suspect_since, OLD.state, OLD.gone_at) IS DISTINCT FROM (
        NEW.part_of_id, NEW.whole_lease_id, NEW.reserved_for_id, NEW.drained, NEW.quarantined, NEW.in_maintenance,
        NEW.suspect_since, NEW.state, NEW.gone_at))
    EXECUTE FUNCTION drydock_tree();
CREATE OR REPLACE TRIGGER resource_leaves AFTER DELETE ON leases_resource FOR EACH ROW
    WHEN (OLD.part_of_id IS NOT NULL) EXECUTE FUNCTION drydock_tree();

CREATE OR REPLACE TRIGGER resource_tree_kept BEFORE UPDATE OF whole_lease_id, busy_below, child_count, closed_by
    ON leases_resource FOR EACH ROW
    WHEN (pg_trigger_depth() = 0 AND (NEW.whole_lease_id, NEW.busy_below, NEW.child_count, NEW.closed_by)
        IS DISTINCT FROM (OLD.whole_lease_id, OLD.busy_below, OLD.child_count, OLD.closed_by))
    EXECUTE FUNCTION drydock_refuse('resource_tree', 'a resource''s place in its tree changes only with the tree');
CREATE OR REPLACE TRIGGER resource_unheld BEFORE INSERT ON leases_resource FOR EACH ROW
    WHEN (NEW.whole_lease_id IS NOT NULL OR NEW.busy_below <> 0 OR NEW.child_count <> 0
        OR (NEW.part_of_id IS NULL AND NEW.closed_by <> '{}'))
    EXECUTE FUNCTION drydock_refuse('resource_tree', 'a new resource has nothing below it');

-- Whether the ancestors of a locked resource, and what is below it, permit a lease there. Returns '' if they do,
-- `taken` if they do not, and `busy` if that is not known because others have locked an ancestor and `waits` is false.
-- The ancestors stay locked, so that the answer is valid until the end of the transaction.
CREATE OR REPLACE FUNCTION drydock_tree_permits(
    resource bigint, lease bigint, holders bigint[], exclusive boolean, slots bigint, waits boolean) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    own leases_resource;
    above leases_resource;
    path bigint[] := ARRAY[resource];
    parent bigint;
BEGIN
    SELECT * INTO own FROM leases_resource WHERE id = resource;
    IF exclusive OR (slots > 0 AND slots >= own.total_slots) THEN
        IF own.busy_below > 0 AND (EXISTS (
            SELECT FROM drydock_below(resource) b JOIN leases_share s ON s.resource_id = b.id
            WHERE NOT drydock_permits(lease, b.path, s.lease_id)) OR EXISTS (
            SELECT FROM drydock_below(resource) b JOIN leases_resource d ON d.id = b.id
            WHERE drydock_obstructs(d) > 0)) THEN
            RETURN 'taken';
        END IF;
        IF own.child_count > 0 AND EXISTS (
            SELECT FROM drydock_below(resource) b JOIN leases_resource d ON d.id = b.id
            WHERE d.reserved_for_id <> ALL(holders)) THEN
            RETURN 'taken';
        END IF;
    END IF;
    parent := own.part_of_id;
    WHILE parent IS NOT NULL LOOP
        IF waits THEN
            SELECT * INTO above FROM leases_resource WHERE id = parent FOR NO KEY UPDATE;
        ELSE
            SELECT * INTO above FROM leases_resource WHERE id = parent FOR NO KEY UPDATE SKIP LOCKED;
            IF NOT FOUND THEN
                RETURN 'busy';
            END IF;
        END IF;
        IF above.drained OR above.quarantined OR above.in_maintenance OR above.suspect_since IS NOT NULL
            OR above.state NOT IN ('pending', 'active') OR above.reserved_for_id <> ALL(holders)
            OR NOT coalesce(drydock_permits(above.whole_lease_id, path, lease), TRUE) THEN
            RETURN 'taken';
        END IF;
        path := path || parent;
        parent := above.part_of_id;
    END LOOP;
    RETURN '';
END $$;

-- As in usage.sql, and: the share of a whole excludes shares below it, and a share of a part that of its wholes.
CREATE OR REPLACE FUNCTION drydock_share() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    asked record;
    costs boolean;
    parent bigint;
    crowded boolean;
BEGIN
    IF TG_OP = 'DELETE' THEN
        UPDATE leases_resource SET
            used_slots = used_slots - OLD.slots, used_cpu_millicores = used_cpu_millicores - OLD.cpu_millicores,
            used_ram_mib = used_ram_mib - OLD.ram_mib, used_disk_mib = used_disk_mib - OLD.disk_mib,
            idle_since = CASE WHEN used_slots = OLD.slots THEN clock_timestamp() END, held_alone = FALSE,
            whole_lease_id = nullif(whole_lease_id, OLD.lease_id)
        WHERE id = OLD.resource_id RETURNING price IS NOT NULL, part_of_id INTO costs, parent;
        IF parent IS NOT NULL THEN
            PERFORM drydock_climb(OLD.resource_id, parent, -1, NULL);
        END IF;
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
        held_alone = NEW.exclusive,
        whole_lease_id = CASE WHEN NEW.exclusive OR (NEW.slots > 0 AND NEW.slots >= total_slots) THEN NEW.lease_id
            ELSE whole_lease_id END
    WHERE id = NEW.resource_id AND NOT held_alone AND NOT (NEW.exclusive AND used_slots > 0)
        AND used_slots + NEW.slots <= total_slots AND used_cpu_millicores + NEW.cpu_millicores <= total_cpu_millicores
        AND used_ram_mib + NEW.ram_mib <= total_ram_mib AND used_disk_mib + NEW.disk_mib <= total_disk_mib
    RETURNING price IS NOT NULL AND state <> 'pending', part_of_id, busy_below > 0 AND whole_lease_id = NEW.lease_id
        INTO costs, parent, crowded;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'resource % has no room for this share', NEW.resource_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'resource_capacity';
    END IF;
    IF crowded AND EXISTS (
        SELECT FROM drydock_below(NEW.resource_id) b JOIN leases_share s ON s.resource_id = b.id
        WHERE NOT drydock_permits(NEW.lease_id, b.path, s.lease_id)) THEN
        RAISE EXCEPTION 'what is below resource % is leased by others', NEW.resource_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'resource_tree';
    END IF;
    IF parent IS NOT NULL THEN
        PERFORM drydock_climb(NEW.resource_id, parent, 1, NEW.lease_id);
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
