-- Version 1: sessions and shards. `p_at` replaces the clock in tests; it is null otherwise.
--
-- Ending a session deletes its row, which waits for a batch that has locked it. Error codes: PR001, the session is
-- gone; PR003, a node owns shards; PR004, the store was moved.

CREATE FUNCTION owned_shards(p_session uuid)
RETURNS TABLE (shard smallint, epoch bigint, unclean_ends bigint, note bytea, gaps bigint[])
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$ SELECT shard, epoch, unclean_ends, note, gaps FROM shards WHERE session = p_session ORDER BY shard $$;

-- Gives shards to a session, each with its next epoch. A maintenance session leaves gaps and idle
-- times unchanged.
CREATE FUNCTION give_shards(p_session uuid, p_role text, p_shards smallint[], p_now bigint) RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$
    UPDATE shards SET session = p_session, epoch = epoch + 1,
        gaps = CASE WHEN p_role <> 'maintenance' AND idle_since_ms < p_now
                    THEN (gaps || ARRAY[idle_since_ms, p_now])
                         [greatest(1, coalesce(array_length(gaps, 1), 0) + 3 - 32):]
                    ELSE gaps END,
        idle_since_ms = CASE WHEN p_role = 'maintenance' THEN idle_since_ms END
    WHERE shard = ANY (p_shards)
$$;

-- Releases shards of a session.
CREATE FUNCTION release_shards(p_session uuid, p_role text, p_shards smallint[], p_now bigint) RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$
    UPDATE shards SET session = NULL,
        idle_since_ms = CASE WHEN p_role = 'maintenance' THEN idle_since_ms ELSE p_now END,
        unclean_ends = CASE WHEN p_role = 'maintenance' THEN unclean_ends ELSE 0 END,
        note = CASE WHEN p_role = 'maintenance' THEN note END
    WHERE session = p_session AND (p_shards IS NULL OR shard = ANY (p_shards))
$$;

-- Serializes the opening of lanes and of maintenance sessions, so that each sees the other.
CREATE FUNCTION insert_session(
    p_id uuid, p_role text, p_node uuid, p_lease bigint, p_info bytea, p_except uuid, p_at bigint)
RETURNS bigint LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
AS $$
DECLARE
    v_now bigint;
    v_visitor uuid;
    v_mark text;
BEGIN
    IF p_role <> 'node' THEN
        PERFORM pg_advisory_xact_lock('sessions'::regclass::oid::integer, 1);
    END IF;
    v_now := coalesce(p_at, now_ms());
    IF p_role = 'maintenance' AND EXISTS (
        SELECT 1 FROM sessions
        WHERE role = 'lane' AND expires_ms >= v_now AND id IS DISTINCT FROM p_except)
    THEN
        RAISE EXCEPTION 'a node owns shards; maintenance is left to it' USING ERRCODE = 'PR003';
    END IF;
    -- Nodes and lanes are refused while the store is marked as moved. The mark is the message of the error.
    IF p_role <> 'maintenance' THEN
        SELECT convert_from(value, 'UTF8') INTO v_mark FROM settings WHERE name = 'move';
        IF FOUND THEN
            RAISE EXCEPTION '%', v_mark USING ERRCODE = 'PR004';
        END IF;
    END IF;
    IF p_role = 'lane' THEN
        FOR v_visitor IN DELETE FROM sessions WHERE role = 'maintenance' RETURNING id LOOP
            PERFORM release_shards(v_visitor, 'maintenance', NULL, v_now);
        END LOOP;
    END IF;
    -- The clock is read after all locks are acquired, so that a new lease has not expired already.
    v_now := coalesce(p_at, now_ms());
    INSERT INTO sessions (id, role, node, lease_ms, opened_ms, expires_ms, info)
    VALUES (p_id, p_role, p_node, p_lease, v_now, later_ms(v_now, p_lease), p_info);
    RETURN v_now;
END
$$;

-- `p_info`, if not null, replaces the session's record.
CREATE FUNCTION renew_session(
    p_session uuid, p_info bytea, p_at bigint, OUT o_now bigint, OUT o_expires bigint)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM 1 FROM sessions WHERE id = p_session FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the session is gone' USING ERRCODE = 'PR001';
    END IF;
    o_now := coalesce(p_at, now_ms());
    UPDATE sessions SET expires_ms = later_ms(o_now, lease_ms), info = coalesce(p_info, info) WHERE id = p_session
    RETURNING expires_ms INTO o_expires;
END
$$;

CREATE FUNCTION open_session(
    p_id uuid, p_role text, p_node uuid, p_lease bigint, p_info bytea, p_at bigint,
    OUT o_now bigint, OUT o_expires bigint)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM sessions WHERE id = p_id) THEN
        SELECT r.o_now, r.o_expires INTO o_now, o_expires FROM renew_session(p_id, NULL, p_at) AS r;
    ELSE
        o_now := insert_session(p_id, p_role, p_node, p_lease, p_info, NULL, p_at);
        o_expires := later_ms(o_now, p_lease);
    END IF;
END
$$;

CREATE FUNCTION end_session(p_session uuid, p_at bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
AS $$
DECLARE
    v_role text;
BEGIN
    DELETE FROM sessions WHERE id = p_session RETURNING role INTO v_role;
    IF FOUND THEN
        PERFORM release_shards(p_session, v_role, NULL, coalesce(p_at, now_ms()));
    END IF;
END
$$;

CREATE FUNCTION claim_shards(p_session uuid, p_target integer, p_at bigint)
RETURNS TABLE (shard smallint, epoch bigint, unclean_ends bigint, note bytea, gaps bigint[])
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := coalesce(p_at, now_ms());
    v_role text;
    v_missing bigint;
    v_expired record;
BEGIN
    -- The row lock evaluates the condition again: a session that was renewed meanwhile is not ended.
    FOR v_expired IN
        SELECT id, role, expires_ms FROM sessions WHERE expires_ms < v_now ORDER BY id FOR UPDATE
    LOOP
        DELETE FROM sessions WHERE id = v_expired.id;
        IF v_expired.role = 'maintenance' THEN
            PERFORM release_shards(v_expired.id, v_expired.role, NULL, v_now);
        ELSE
            UPDATE shards SET session = NULL, idle_since_ms = v_expired.expires_ms, unclean_ends = unclean_ends + 1
            WHERE session = v_expired.id;
        END IF;
    END LOOP;
    SELECT role INTO v_role FROM sessions WHERE id = p_session FOR KEY SHARE;
    IF NOT FOUND THEN
        -- Returns normally, because an error would roll back the ended sessions.
        RETURN QUERY SELECT -1::smallint, 0::bigint, 0::bigint, NULL::bytea, NULL::bigint[];
        RETURN;
    END IF;
    SELECT p_target - count(*) INTO v_missing FROM shards WHERE session = p_session;
    IF v_missing > 0 THEN
        v_now := coalesce(p_at, now_ms());
        PERFORM give_shards(p_session, v_role, ARRAY(
            SELECT shard FROM shards WHERE session IS NULL ORDER BY shard LIMIT v_missing FOR UPDATE), v_now);
    END IF;
    RETURN QUERY SELECT * FROM owned_shards(p_session);
END
$$;

CREATE FUNCTION release_some(p_session uuid, p_shards smallint[], p_at bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
AS $$
DECLARE
    v_role text;
BEGIN
    SELECT role INTO v_role FROM sessions WHERE id = p_session FOR KEY SHARE;
    IF FOUND THEN
        PERFORM release_shards(p_session, v_role, p_shards, coalesce(p_at, now_ms()));
    END IF;
END
$$;

-- Returns one row for each shard that the new session owns, or one row without a shard.
CREATE FUNCTION replace_session(
    p_old uuid, p_id uuid, p_role text, p_node uuid, p_lease bigint, p_info bytea, p_at bigint)
RETURNS TABLE (now_ms bigint, expires_ms bigint, shard smallint, epoch bigint, unclean_ends bigint, note bytea,
               gaps bigint[])
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    v_now bigint;
    v_expires bigint;
    v_was_there boolean;
BEGIN
    IF EXISTS (SELECT 1 FROM sessions WHERE id = p_id) THEN
        SELECT r.o_now, r.o_expires INTO v_now, v_expires FROM renew_session(p_id, NULL, p_at) AS r;
    ELSE
        DELETE FROM sessions WHERE id = p_old;
        v_was_there := FOUND;
        v_now := insert_session(p_id, p_role, p_node, p_lease, p_info, p_old, p_at);
        v_expires := later_ms(v_now, p_lease);
        IF v_was_there THEN
            PERFORM give_shards(p_id, p_role, ARRAY(SELECT shard FROM shards WHERE session = p_old), v_now);
        END IF;
    END IF;
    RETURN QUERY SELECT v_now, v_expires, s.shard, s.epoch, s.unclean_ends, s.note, s.gaps
        FROM (SELECT 1) AS one LEFT JOIN owned_shards(p_id) AS s ON true;
END
$$;

CREATE FUNCTION write_shard_notes(p_session uuid, p_shards smallint[], p_notes bytea[], p_is_steady boolean)
RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM 1 FROM sessions WHERE id = p_session FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the session is gone' USING ERRCODE = 'PR001';
    END IF;
    UPDATE shards SET note = n.note, unclean_ends = CASE WHEN p_is_steady THEN 0 ELSE unclean_ends END
    FROM unnest(p_shards, p_notes) AS n (shard, note)
    WHERE shards.shard = n.shard AND session = p_session;
END
$$;

-- Raises an error if the session is gone or does not own all of the shards.
CREATE FUNCTION check_owner(p_session uuid, p_shards smallint[]) RETURNS void
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM sessions WHERE id = p_session)
        OR (SELECT count(*) FROM shards WHERE session = p_session AND shard = ANY (p_shards))
            < cardinality(p_shards)
    THEN
        RAISE EXCEPTION 'the session is gone' USING ERRCODE = 'PR001';
    END IF;
END
$$;
