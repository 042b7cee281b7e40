-- A record of its own beside the product's events: what happened to shares and states, written by triggers that the
-- product does not know. The share's trigger comes last by its name, when the resource is locked, so that the numbers
-- of one resource are in the order in which its shares came and went.
CREATE SCHEMA chaos;
CREATE TABLE chaos.shares (
    n bigserial PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp(), sign int NOT NULL, lease bigint NOT NULL,
    resource bigint NOT NULL, slots bigint NOT NULL, cpu bigint NOT NULL, ram bigint NOT NULL, disk bigint NOT NULL,
    extra jsonb NOT NULL, unclean bool NOT NULL, total_slots bigint NOT NULL, total_cpu bigint NOT NULL, total_ram bigint NOT NULL,
    total_disk bigint NOT NULL);
CREATE TABLE chaos.states (
    n bigserial PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp(), what text NOT NULL, id bigint NOT NULL,
    from_state text NOT NULL, to_state text NOT NULL, transaction xid8 NOT NULL DEFAULT pg_current_xact_id());

CREATE FUNCTION chaos.share() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    s leases_share := CASE WHEN TG_OP = 'INSERT' THEN NEW ELSE OLD END;
BEGIN
    INSERT INTO chaos.shares (sign, lease, resource, slots, cpu, ram, disk, extra, unclean, total_slots, total_cpu,
        total_ram, total_disk)
    SELECT CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END, s.lease_id, s.resource_id, s.slots, s.cpu_millicores,
        s.ram_mib, s.disk_mib, s.extra, EXISTS (SELECT FROM leases_debt d WHERE d.resource_id = s.resource_id),
        r.total_slots, r.total_cpu_millicores, r.total_ram_mib, r.total_disk_mib
    FROM leases_resource r WHERE r.id = s.resource_id;
    RETURN NULL;
END $$;
CREATE TRIGGER zz_chaos AFTER INSERT OR DELETE ON leases_share FOR EACH ROW EXECUTE FUNCTION chaos.share();

CREATE FUNCTION chaos.state() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos.states (what, id, from_state, to_state)
    VALUES (TG_ARGV[0], NEW.id, CASE TG_OP WHEN 'INSERT' THEN '' ELSE OLD.state END, NEW.state);
    RETURN NULL;
END $$;
CREATE TRIGGER zz_chaos_new AFTER INSERT ON leases_lease FOR EACH ROW EXECUTE FUNCTION chaos.state('lease');
CREATE TRIGGER zz_chaos AFTER UPDATE ON leases_lease FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION chaos.state('lease');
CREATE TRIGGER zz_chaos_new AFTER INSERT ON leases_resource FOR EACH ROW EXECUTE FUNCTION chaos.state('resource');
CREATE TRIGGER zz_chaos AFTER UPDATE ON leases_resource FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION chaos.state('resource');
