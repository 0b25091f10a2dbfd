-- Version 1: messages and requests from processes other than the owner, and what an owner reads in its passes.

-- Appends messages, independently of each other. The arrays have one entry for each request, sorted by id. `r_place` is
-- the request's position in the call; numbers are assigned in that order. `n_…` are the rows of starts.
-- Codes: 0 sent, 1 duplicate, 2 id taken, 3 no instance, 4 ended, 5 full (`number` is the count of unread messages), 6
-- key taken.
-- `r_counts` selects the instances whose unread messages are counted; `unread` returns the count.
CREATE FUNCTION send_messages(
    p_at bigint, p_most bigint,
    r_place integer[], r_kind smallint[], r_id text[], r_key uuid[], r_dedupe text[], r_urgent boolean[], r_counts boolean[], r_body bytea[],
    n_shard smallint[], n_name text[], n_version text[], n_status smallint[], n_execution bigint[], n_owed boolean[],
    n_wake bigint[], n_blocked text[], n_attributes text[], n_published text[], n_parent text[], n_created bigint[],
    n_ended bigint[], n_parent_key text[], n_full boolean[], n_checksum integer[],
    a_request integer[], a_name text[], a_order bytea[])
RETURNS TABLE (
    request integer, code smallint, number bigint, unread bigint,
    key uuid, id text, shard smallint, name text, version text, status smallint, execution bigint, owed boolean,
    wake_at_ms bigint, blocked text, attributes text, published text, parent text, created_ms bigint, ended_ms bigint,
    parent_key text, is_full boolean, checksum integer)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_row instances%ROWTYPE;
    v_code smallint;
    v_numbers bigint[];
    v_number bigint;
    v_unread bigint;
    v_waiting bigint;
    v_key uuid;
BEGIN
    IF cardinality(r_kind) > 1 AND 1 = ANY (r_kind) THEN
        -- Addressees are locked in the order of their keys, as by commits, to avoid deadlocks.
        FOR v_key IN
            SELECT DISTINCT i.key FROM unnest(r_kind, r_id) AS r (kind, id) JOIN instances AS i ON i.id = r.id
            WHERE r.kind = 1 ORDER BY i.key
        LOOP
            PERFORM 1 FROM instances AS i WHERE i.key = v_key FOR KEY SHARE;
        END LOOP;
    END IF;
    SELECT array_agg(nextval('inbox_numbers')) INTO v_numbers FROM generate_series(1, cardinality(r_kind));
    FOR q IN 1..cardinality(r_kind) LOOP
        v_row := NULL;
        v_number := NULL;
        v_unread := NULL;
        v_key := r_key[q];
        IF r_kind[q] = 0 THEN
            INSERT INTO instances (key, id, shard, name, version, status, execution, owed, wake_at_ms, blocked, attributes,
                published, parent, created_ms, ended_ms, parent_key, is_full, checksum)
            VALUES (r_key[q], r_id[q], n_shard[q], n_name[q], n_version[q], n_status[q], n_execution[q], n_owed[q],
                n_wake[q], n_blocked[q], n_attributes[q], n_published[q], n_parent[q], n_created[q], n_ended[q],
                n_parent_key[q], n_full[q], n_checksum[q])
            ON CONFLICT DO NOTHING;
            IF FOUND THEN
                v_code := 0;
                v_number := v_numbers[r_place[q]];
                INSERT INTO attributes (key, name, order_key)
                SELECT r_key[q], a.name, a.order_key FROM unnest(a_request, a_name, a_order) AS a (request, name, order_key)
                WHERE a.request = q;
                INSERT INTO inbox (shard, number, key, arrived_ms, parked, urgent, dedupe, body)
                VALUES (n_shard[q], v_number, r_key[q], coalesce(p_at, now_ms()), n_wake[q] IS NOT NULL, false, NULL,
                    r_body[q]);
            ELSE
                SELECT i.* INTO v_row FROM instances AS i WHERE i.id = r_id[q];
                IF FOUND THEN
                    v_code := 2;
                ELSIF EXISTS (SELECT 1 FROM instances AS i WHERE i.key = r_key[q]) THEN
                    v_code := 6;
                ELSE
                    RAISE EXCEPTION 'an instance was deleted meanwhile' USING ERRCODE = '40001';
                END IF;
            END IF;
        ELSE
            SELECT i.* INTO v_row FROM instances AS i
            WHERE i.id = r_id[q] AND (r_key[q] IS NULL OR i.key = r_key[q]) FOR KEY SHARE;
            IF NOT FOUND THEN
                v_code := 3;
            ELSIF v_row.status >= 2 THEN
                v_code := 4;
            ELSE
                v_key := v_row.key;
                SELECT b.number INTO v_waiting FROM inbox AS b WHERE b.key = v_key AND b.dedupe = r_dedupe[q];
                IF FOUND THEN
                    v_code := 1;
                    v_number := v_waiting;
                ELSE
                    IF NOT r_urgent[q] AND (r_counts[q] OR v_row.is_full) THEN
                        SELECT count(*) INTO v_unread FROM inbox AS b WHERE b.key = v_key;
                    END IF;
                    IF NOT r_urgent[q] AND (v_row.is_full OR v_unread >= p_most) THEN
                        v_code := 5;
                        v_number := v_unread;
                    ELSE
                        v_number := v_numbers[r_place[q]];
                        INSERT INTO inbox (shard, number, key, arrived_ms, parked, urgent, dedupe, body)
                        VALUES (v_row.shard, v_number, v_key, coalesce(p_at, now_ms()), false, r_urgent[q], r_dedupe[q],
                            r_body[q])
                        ON CONFLICT (key, dedupe) DO NOTHING;
                        IF FOUND THEN
                            v_code := 0;
                        ELSE
                            SELECT b.number INTO v_number FROM inbox AS b
                            WHERE b.key = v_key AND b.dedupe = r_dedupe[q];
                            IF NOT FOUND THEN
                                RAISE EXCEPTION 'a message was consumed meanwhile' USING ERRCODE = '40001';
                            END IF;
                            v_code := 1;
                        END IF;
                    END IF;
                END IF;
                IF v_code = 1 AND r_urgent[q] THEN
                    UPDATE inbox AS b SET urgent = true
                    WHERE b.key = v_key AND b.dedupe = r_dedupe[q] AND NOT b.urgent;
                END IF;
            END IF;
            IF v_code <> 4 THEN
                v_row := NULL;
            END IF;
        END IF;
        RETURN QUERY SELECT q, v_code, v_number, v_unread, v_row.key, v_row.id, v_row.shard, v_row.name,
            v_row.version, v_row.status, v_row.execution, v_row.owed, v_row.wake_at_ms, v_row.blocked, v_row.attributes,
            v_row.published, v_row.parent, v_row.created_ms, v_row.ended_ms, v_row.parent_key, v_row.is_full,
            v_row.checksum;
    END LOOP;
END
$$;

-- Reads a page of the inbox of some shards. The first row after the page has no body: the next page begins there. The
-- numbers are found first, with the index of each shard, so that only bodies that fit are read.
CREATE FUNCTION read_inbox(
    p_session uuid, p_shards smallint[], p_from bigint, p_known bigint[], p_rows bigint, p_bytes bigint)
RETURNS TABLE (number bigint, key uuid, shard smallint, arrived_ms bigint, urgent boolean, body bytea)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    PERFORM check_owner(p_session, p_shards);
    RETURN QUERY
        WITH found AS (
            SELECT f.shard, f.number FROM unnest(p_shards) AS p (shard) CROSS JOIN LATERAL (
                SELECT b.shard, b.number FROM inbox AS b
                WHERE b.shard = p.shard AND b.number >= p_from AND NOT b.parked
                    AND (b.urgent OR NOT EXISTS (
                        SELECT 1 FROM instances AS i
                        WHERE i.shard = b.shard AND i.key = b.key AND i.blocked IS NOT NULL))
                    AND b.number NOT IN (SELECT unnest(p_known))
                ORDER BY b.shard, b.number LIMIT p_rows + 1
            ) AS f ORDER BY f.number LIMIT p_rows + 1
        ), sized AS (
            SELECT b.*, row_number() OVER place AS place, sum(octet_length(b.body)) OVER place AS bytes
            FROM found JOIN inbox AS b ON b.shard = found.shard AND b.number = found.number
            WINDOW place AS (ORDER BY b.number ROWS UNBOUNDED PRECEDING)
        ), fitting AS (
            SELECT s.*, s.place = 1 OR (s.place <= p_rows AND s.bytes <= p_bytes) AS fits FROM sized AS s
        )
        SELECT f.number, f.key, f.shard, f.arrived_ms, f.urgent, CASE WHEN f.fits THEN f.body END
        FROM fitting AS f
        WHERE f.fits OR f.place = (SELECT min(n.place) FROM fitting AS n WHERE NOT n.fits)
        ORDER BY f.number;
END
$$;

CREATE FUNCTION read_due(
    p_session uuid, p_shards smallint[], p_before bigint, p_after_ms bigint, p_after_key uuid, p_rows bigint)
RETURNS TABLE (key uuid, shard smallint, wake_at_ms bigint)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    PERFORM check_owner(p_session, p_shards);
    RETURN QUERY
        SELECT f.key, f.shard, f.wake_at_ms FROM unnest(p_shards) AS p (shard) CROSS JOIN LATERAL (
            SELECT i.key, i.shard, i.wake_at_ms FROM instances AS i
            WHERE i.shard = p.shard AND i.wake_at_ms < p_before AND i.status < 2 AND i.wake_at_ms IS NOT NULL
                AND (i.wake_at_ms, i.key) > (p_after_ms, p_after_key)
            ORDER BY i.shard, i.wake_at_ms, i.key LIMIT p_rows
        ) AS f ORDER BY f.wake_at_ms, f.key LIMIT p_rows;
END
$$;

CREATE FUNCTION read_owed(p_session uuid, p_shards smallint[], p_after uuid, p_rows bigint)
RETURNS TABLE (key uuid, shard smallint)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    PERFORM check_owner(p_session, p_shards);
    RETURN QUERY
        SELECT f.key, f.shard FROM unnest(p_shards) AS p (shard) CROSS JOIN LATERAL (
            SELECT i.key, i.shard FROM instances AS i
            WHERE i.shard = p.shard AND i.owed AND i.status < 2 AND (p_after IS NULL OR i.key > p_after)
            ORDER BY i.shard, i.key LIMIT p_rows
        ) AS f ORDER BY f.key LIMIT p_rows;
END
$$;

CREATE FUNCTION read_blocked(p_session uuid, p_shards smallint[], p_after uuid, p_rows bigint)
RETURNS TABLE (key uuid, shard smallint)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    PERFORM check_owner(p_session, p_shards);
    RETURN QUERY
        SELECT f.key, f.shard FROM unnest(p_shards) AS p (shard) CROSS JOIN LATERAL (
            SELECT i.key, i.shard FROM instances AS i
            WHERE i.shard = p.shard AND i.blocked IS NOT NULL AND i.status < 2 AND (p_after IS NULL OR i.key > p_after)
            ORDER BY i.shard, i.key LIMIT p_rows
        ) AS f ORDER BY f.key LIMIT p_rows;
END
$$;

-- Returns no row if the instance does not exist.
CREATE FUNCTION put_request(p_id text, p_key uuid, p_patience bigint, p_after bigint, p_body bytea, p_at bigint)
RETURNS TABLE (number bigint, shard smallint)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_row record;
    v_number bigint;
BEGIN
    SELECT i.key, i.shard INTO v_row FROM instances AS i
    WHERE i.id = p_id AND (p_key IS NULL OR i.key = p_key) FOR KEY SHARE;
    IF FOUND THEN
        v_number := nextval('request_numbers');
        INSERT INTO requests (number, key, shard, deadline_ms, after_number, body)
        VALUES (v_number, v_row.key, v_row.shard, later_ms(coalesce(p_at, now_ms()), p_patience), p_after, p_body);
        RETURN QUERY SELECT v_number, v_row.shard;
    END IF;
END
$$;

-- Returns a page as `read_inbox` does.
CREATE FUNCTION read_requests(
    p_session uuid, p_shards smallint[], p_from bigint, p_rows bigint, p_bytes bigint, p_at bigint)
RETURNS TABLE (number bigint, key uuid, shard smallint, deadline_ms bigint, after_number bigint, body bytea)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := coalesce(p_at, now_ms());
BEGIN
    PERFORM check_owner(p_session, p_shards);
    RETURN QUERY
        WITH found AS (
            SELECT f.number FROM unnest(p_shards) AS p (shard) CROSS JOIN LATERAL (
                SELECT q.number FROM requests AS q
                WHERE q.shard = p.shard AND q.number >= p_from AND q.deadline_ms > v_now
                ORDER BY q.shard, q.number LIMIT p_rows + 1
            ) AS f ORDER BY f.number LIMIT p_rows + 1
        ), sized AS (
            SELECT q.*, row_number() OVER place AS place, sum(octet_length(q.body)) OVER place AS bytes
            FROM found JOIN requests AS q ON q.number = found.number
            WINDOW place AS (ORDER BY q.number ROWS UNBOUNDED PRECEDING)
        ), fitting AS (
            SELECT s.*, s.place = 1 OR (s.place <= p_rows AND s.bytes <= p_bytes) AS fits FROM sized AS s
        )
        SELECT f.number, f.key, f.shard, f.deadline_ms, f.after_number, CASE WHEN f.fits THEN f.body END
        FROM fitting AS f
        WHERE f.fits OR f.place = (SELECT min(n.place) FROM fitting AS n WHERE NOT n.fits)
        ORDER BY f.number;
END
$$;

-- Writes or deletes a setting if its value is still the one that was read.
CREATE FUNCTION write_setting(p_name text, p_read bytea, p_value bytea) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
AS $$
BEGIN
    IF p_read IS NULL THEN
        IF p_value IS NULL THEN
            RETURN NOT EXISTS (SELECT 1 FROM settings WHERE name = p_name);
        END IF;
        INSERT INTO settings (name, value) VALUES (p_name, p_value) ON CONFLICT DO NOTHING;
    ELSIF p_value IS NULL THEN
        DELETE FROM settings WHERE name = p_name AND value = p_read;
    ELSE
        UPDATE settings SET value = p_value WHERE name = p_name AND value = p_read;
    END IF;
    RETURN FOUND;
END
$$;
