-- As in tree.sql, but each step must use the index. In a table of a few thousand resources, the planner would read all of
-- them for each step, as it expects the recursion to find more than the few parts of a host.
CREATE OR REPLACE FUNCTION drydock_below(top bigint) RETURNS TABLE (id bigint, path bigint[])
LANGUAGE plpgsql STABLE ROWS 8 AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY WITH RECURSIVE below AS (
        SELECT r.id, ARRAY[r.id] AS path FROM leases_resource r WHERE r.part_of_id = top
        UNION ALL
        SELECT r.id, r.id || b.path FROM below b
        CROSS JOIN LATERAL (SELECT c.id FROM leases_resource c WHERE c.part_of_id = b.id OFFSET 0) r
        WHERE cardinality(b.path) < 5)
    SELECT * FROM below;
END $$;
