-- Version 1: commits a batch in one call. Clients commit the most frequent kind of batch with a statement of their own and
-- call this function for all others.
--
-- The caller divides the batch into waves. Members of one wave are independent of each other, so that one statement
-- writes each part of all of them. Members of the next wave see the effects of the previous ones. The messages of a
-- member are divided into stages for the same reason: starts are in even stages, other messages in odd stages.
--
-- Everything that can prevent a member from being written is checked before any part of it is written, and determines
-- its code: 0 durable, 1 fenced, 2 id taken, 3 other turn, 4 missing turn, 5 no instance, 6 message gone, 7 earlier
-- message, 8 durable before, 9 key taken. If a concurrent transaction invalidates a check, the whole call fails with
-- 40001 and the caller retries it.
--
-- Prefixes of the parameters: m members, t their turns, x further turns, n new instances (of a member, or of one of its
-- starts), c changed rows, k continuations, a attributes, d messages consumed, s messages seen, w tasks, r replies, o
-- outgoing messages. All arrays with the same prefix have the same length, or are null if they have no values. m and t have
-- one entry for each member. A null array needs no unpacking. A caller leaves out what is null at the end of the list,
-- since binding a parameter costs as much as a small part of the work.
--
-- Most batches consist of turns, new instances and changed rows. p_more tells whether there is anything else, so that
-- these batches evaluate few expressions: PL/pgSQL prepares each expression again in every transaction, at several
-- microseconds each. For the same reason a batch returns no row if all of its members are durable and sent nothing.
-- The statements of these batches unpack one array and subscript the others, which is several times faster than unpacking
-- them all: PL/pgSQL keeps arrays in a form in which an element is found at once.

CREATE FUNCTION commit_batch(
    p_session uuid, p_at bigint, p_waves integer, p_inserts boolean, p_more boolean,
    m_key uuid[], m_shard smallint[], m_epoch bigint[], m_wave integer[], m_inserts boolean[], m_fired bigint[],
    t_execution bigint[], t_number bigint[], t_body bytea[], t_checksum integer[],
    n_member integer[] = NULL, n_send integer[] = NULL, n_key uuid[] = NULL, n_id text[] = NULL,
    n_shard smallint[] = NULL, n_name text[] = NULL, n_version text[] = NULL, n_status smallint[] = NULL,
    n_execution bigint[] = NULL, n_owed boolean[] = NULL, n_wake bigint[] = NULL, n_blocked text[] = NULL,
    n_attributes text[] = NULL, n_published text[] = NULL, n_parent text[] = NULL, n_created bigint[] = NULL,
    n_ended bigint[] = NULL, n_parent_key text[] = NULL, n_full boolean[] = NULL, n_checksum integer[] = NULL,
    c_member integer[] = NULL, c_mask integer[] = NULL, c_status smallint[] = NULL, c_execution bigint[] = NULL,
    c_version text[] = NULL, c_owed boolean[] = NULL, c_wake bigint[] = NULL, c_blocked text[] = NULL,
    c_full boolean[] = NULL, c_attributes text[] = NULL, c_published text[] = NULL, c_ended bigint[] = NULL,
    p_stages integer = NULL, p_reindexes boolean = NULL, x_member integer[] = NULL, x_execution bigint[] = NULL,
    x_number bigint[] = NULL, x_body bytea[] = NULL, x_checksum integer[] = NULL,
    k_member integer[] = NULL, k_execution bigint[] = NULL,
    a_member integer[] = NULL, a_send integer[] = NULL, a_name text[] = NULL, a_order bytea[] = NULL,
    d_member integer[] = NULL, d_number bigint[] = NULL,
    s_member integer[] = NULL, s_number bigint[] = NULL,
    w_member integer[] = NULL, w_op smallint[] = NULL, w_key uuid[] = NULL, w_execution bigint[] = NULL,
    w_event bigint[] = NULL, w_shard smallint[] = NULL, w_state smallint[] = NULL, w_holder uuid[] = NULL,
    w_cancelled boolean[] = NULL, w_attempt bigint[] = NULL, w_due bigint[] = NULL, w_since bigint[] = NULL,
    w_heard bigint[] = NULL, w_interruptions bigint[] = NULL, w_begun uuid[] = NULL, w_name text[] = NULL,
    w_tag text[] = NULL, w_details text[] = NULL, w_past text[] = NULL, w_work bytea[] = NULL,
    r_member integer[] = NULL, r_number bigint[] = NULL, r_body bytea[] = NULL,
    o_member integer[] = NULL, o_stage integer[] = NULL, o_kind smallint[] = NULL, o_key uuid[] = NULL,
    o_id text[] = NULL, o_dedupe text[] = NULL, o_urgent boolean[] = NULL, o_body bytea[] = NULL,
    o_good bytea[] = NULL, o_absent bytea[] = NULL, o_other bytea[] = NULL, o_replaces boolean[] = NULL)
RETURNS TABLE (
    member integer, code smallint, sent bigint[], owned smallint[],
    key uuid, id text, shard smallint, name text, version text, status smallint, execution bigint, owed boolean,
    wake_at_ms bigint, blocked text, attributes text, published text, parent text, created_ms bigint, ended_ms bigint,
    parent_key text, is_full boolean, checksum integer)
LANGUAGE plpgsql VOLATILE
-- Plans may be made while tables are still empty, and are kept when the tables have grown.
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_now bigint;
    v_code smallint[];
    v_owned smallint[];
    v_numbers bigint[];
    v_done bigint[];
    v_some bigint[];
    v_keys uuid[];
    v_members bigint[];
    v_rows instances[];
    v_taken_by bigint[]; -- members whose ids are taken; the instances are in v_taken
    v_taken instances[];
    v_key uuid;
    v_count bigint;
    v_other bigint;
    v_has_graves boolean;
    v_has_fired boolean;
    r record;
    w integer;
    g integer;
BEGIN
    -- Ending the session needs this row exclusively: it waits for this batch, or the batch finds the session gone.
    -- Renewals do not conflict with this lock.
    PERFORM 1 FROM sessions WHERE id = p_session FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT m, 1::smallint, NULL::bigint[], NULL::smallint[],
            NULL::uuid, NULL::text, NULL::smallint, NULL::text, NULL::text, NULL::smallint, NULL::bigint, NULL::boolean,
            NULL::bigint, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint,
            NULL::text, NULL::boolean, NULL::integer
            FROM generate_series(1, cardinality(m_key)) AS m;
        RETURN;
    END IF;
    -- OFFSET 0 keeps the lookups by primary key. Otherwise the plan reads all shards of the session for every batch.
    SELECT array_agg((CASE WHEN s.shard IS NULL THEN 1 ELSE 0 END)::smallint ORDER BY t.m), EXISTS (SELECT 1 FROM graves)
    INTO v_code, v_has_graves
    FROM unnest(m_shard) WITH ORDINALITY AS t (shard, m)
    LEFT JOIN LATERAL (
        SELECT s.shard FROM shards AS s
        WHERE s.shard = t.shard AND s.session = p_session AND s.epoch = m_epoch[t.m] OFFSET 0
    ) AS s ON true;

    IF p_more THEN
        -- Locks rows that other transactions may delete or append messages to. Keys are locked in order, to avoid
        -- deadlocks, and before the clock is read. Locking an addressee prevents its deletion. Locking an instance
        -- whose timer fires makes sure that no message with an earlier time of arrival is still uncommitted.
        v_has_fired := m_fired IS NOT NULL;
        IF o_member IS NOT NULL THEN
            o_key := coalesce(o_key, array_fill(NULL::uuid, ARRAY[cardinality(o_member)]));
            SELECT array_agg(shard) INTO v_owned FROM shards WHERE session = p_session;
            SELECT array_agg(nextval('inbox_numbers')) INTO v_numbers FROM generate_series(1, 2 * cardinality(o_member));
        END IF;
        IF o_member IS NOT NULL OR v_has_fired THEN
            FOR r IN
                SELECT k.key, bool_or(k.fires) AS fires FROM (
                    SELECT o.key, false AS fires FROM unnest(o_kind, o_key) AS o (kind, key) WHERE o.kind = 1
                    UNION ALL
                    SELECT i.key, false FROM unnest(o_kind, o_id) AS o (kind, id) JOIN instances AS i ON i.id = o.id
                    WHERE o.kind = 2
                    UNION ALL
                    SELECT m.key, true FROM unnest(m_key, m_fired) WITH ORDINALITY AS m (key, fired, m)
                    WHERE m.fired IS NOT NULL AND v_code[m.m] = 0
                ) AS k GROUP BY k.key ORDER BY k.key
            LOOP
                IF r.fires THEN
                    PERFORM 1 FROM instances AS i WHERE i.key = r.key FOR UPDATE;
                ELSE
                    PERFORM 1 FROM instances AS i WHERE i.key = r.key FOR KEY SHARE;
                END IF;
            END LOOP;
        END IF;
        v_now := coalesce(p_at, now_ms());
    END IF;

    FOR w IN 1..p_waves LOOP
        ------------------------------------------------------------------------------------------------------- checks
        IF v_has_graves THEN
            FOR r IN
                SELECT t.m, t.number FROM unnest(m_key, m_wave, t_number) WITH ORDINALITY AS t (key, wave, number, m)
                WHERE t.wave = w AND v_code[t.m] = 0 AND EXISTS (SELECT 1 FROM graves AS b WHERE b.key = t.key)
            LOOP
                v_code[r.m] := CASE WHEN coalesce(r.number, 1) = 1 THEN 5 ELSE 4 END;
            END LOOP;
        END IF;
        -- Selects the members that need a closer look: all but those whose turn is the next one of an instance that
        -- has not ended, or the first one of a new instance.
        SELECT array_agg(t.m) INTO v_members
        FROM unnest(m_wave) WITH ORDINALITY AS t (wave, m)
        LEFT JOIN LATERAL (
            SELECT u.number FROM turns AS u WHERE u.key = m_key[t.m] AND u.execution = t_execution[t.m]
            ORDER BY u.number DESC LIMIT 1
        ) AS last ON true
        LEFT JOIN LATERAL (SELECT i.status FROM instances AS i WHERE i.key = m_key[t.m] OFFSET 0) AS i ON true
        WHERE t.wave = w AND v_code[t.m] = 0
            AND (t_number[t.m] <> coalesce(last.number, 0) + 1
                OR CASE WHEN m_inserts[t.m] THEN i.status IS NOT NULL ELSE i.status IS NULL OR i.status >= 2 END);
        IF v_members IS NOT NULL THEN
            FOR r IN
                SELECT t.m, CASE
                    WHEN same.body = t.body AND same.checksum = t.checksum THEN 8
                    WHEN same.key IS NOT NULL THEN 3
                    WHEN t.number > 1 AND NOT EXISTS (
                        SELECT 1 FROM turns AS p
                        WHERE p.key = t.key AND p.execution = t.execution AND p.number = t.number - 1)
                    THEN 4
                    WHEN i.key IS NULL AND NOT t.inserts THEN 5
                    WHEN t.inserts AND i.key IS NOT NULL AND NOT EXISTS (
                        SELECT 1 FROM unnest(n_member, n_send, n_id) AS n (m, send, id)
                        WHERE n.m = t.m AND n.send IS NULL AND n.id = i.id)
                    THEN 9
                    ELSE 0 END AS code
                FROM unnest(m_key, m_inserts, t_execution, t_number, t_body, t_checksum) WITH ORDINALITY
                    AS t (key, inserts, execution, number, body, checksum, m)
                LEFT JOIN turns AS same ON same.key = t.key AND same.execution = t.execution AND same.number = t.number
                LEFT JOIN instances AS i ON i.key = t.key
                WHERE t.m = ANY (v_members)
            LOOP
                v_code[r.m] := r.code;
            END LOOP;
            -- The others have ended, and may be deleted at any time. Only the owner ends an instance.
            SELECT array_agg(m_key[m]) INTO v_keys FROM unnest(v_members) AS m WHERE v_code[m] = 0 AND NOT m_inserts[m];
            IF v_keys IS NOT NULL THEN
                PERFORM 1 FROM instances AS i WHERE i.key = ANY (v_keys) ORDER BY i.key FOR KEY SHARE;
                FOR r IN
                    SELECT t.m FROM unnest(m_key, m_wave) WITH ORDINALITY AS t (key, wave, m)
                    WHERE t.wave = w AND v_code[t.m] = 0 AND t.key = ANY (v_keys)
                        AND NOT EXISTS (SELECT 1 FROM instances AS i WHERE i.key = t.key)
                LOOP
                    v_code[r.m] := 5;
                END LOOP;
            END IF;
        END IF;
        IF p_inserts THEN
            SELECT array_agg(n.m::bigint), array_agg(i) INTO v_members, v_rows
            FROM unnest(n_member, n_send, n_id) AS n (m, send, id)
            JOIN instances AS i ON i.id = n.id
            WHERE n.send IS NULL AND m_wave[n.m] = w AND v_code[n.m] = 0;
            IF v_members IS NOT NULL THEN
                FOR g IN 1..cardinality(v_members) LOOP
                    -- The same bytes, sent before, may have been committed since the check above.
                    SELECT CASE WHEN u.body = t_body[v_members[g]] AND u.checksum = t_checksum[v_members[g]] THEN 8 ELSE 3 END
                    INTO v_other FROM turns AS u
                    WHERE u.key = m_key[v_members[g]] AND u.execution = t_execution[v_members[g]]
                        AND u.number = t_number[v_members[g]];
                    v_code[v_members[g]] := coalesce(v_other, 2);
                    IF v_other IS NULL THEN
                        v_taken_by := v_taken_by || v_members[g];
                        v_taken := v_taken || v_rows[g];
                    END IF;
                END LOOP;
            END IF;
        END IF;
        IF p_more THEN
            IF x_member IS NOT NULL THEN
                FOR r IN
                    SELECT DISTINCT x.m FROM unnest(x_member, x_execution, x_number) AS x (m, execution, number)
                    JOIN turns AS same
                        ON same.key = m_key[x.m] AND same.execution = x.execution AND same.number = x.number
                    WHERE m_wave[x.m] = w AND v_code[x.m] = 0
                LOOP
                    v_code[r.m] := 3;
                END LOOP;
            END IF;
            IF v_has_fired THEN
                FOR r IN
                    SELECT t.m FROM unnest(m_key, m_wave, m_fired) WITH ORDINALITY AS t (key, wave, fired, m)
                    WHERE t.wave = w AND t.fired IS NOT NULL AND v_code[t.m] = 0
                        AND EXISTS (
                            SELECT 1 FROM inbox AS b
                            WHERE b.key = t.key AND NOT b.parked AND b.arrived_ms < t.fired
                                AND NOT EXISTS (SELECT 1 FROM unnest(d_member, d_number) AS d (m, number)
                                                WHERE d.m = t.m AND d.number = b.number))
                LOOP
                    v_code[r.m] := 7;
                END LOOP;
            END IF;
            IF d_member IS NOT NULL THEN
                FOR r IN
                    SELECT DISTINCT d.m FROM unnest(d_member, d_number) AS d (m, number)
                    WHERE m_wave[d.m] = w AND v_code[d.m] = 0
                        AND NOT EXISTS (SELECT 1 FROM inbox AS b WHERE b.shard = m_shard[d.m] AND b.number = d.number)
                LOOP
                    v_code[r.m] := 6;
                END LOOP;
            END IF;
        END IF;

        ------------------------------------------------------------------------------------------------- the instances
        -- If another transaction inserted the same id after the check, this raises a unique violation, and the caller
        -- retries. This is cheaper than ON CONFLICT, which writes each row in two phases.
        IF p_inserts THEN
            INSERT INTO instances (key, id, shard, name, version, status, execution, owed, wake_at_ms, blocked,
                attributes, published, parent, created_ms, ended_ms, parent_key, is_full, checksum)
            SELECT n_key[n.k], n.id, n_shard[n.k], n_name[n.k], n_version[n.k], n_status[n.k], n_execution[n.k],
                n_owed[n.k], n_wake[n.k], n_blocked[n.k], n_attributes[n.k], n_published[n.k], n_parent[n.k],
                n_created[n.k], n_ended[n.k], n_parent_key[n.k], n_full[n.k], n_checksum[n.k]
            FROM unnest(n_id) WITH ORDINALITY AS n (id, k)
            WHERE n_send[n.k] IS NULL AND m_wave[n_member[n.k]] = w AND v_code[n_member[n.k]] = 0
            -- Sorted, so that two batches that start the same instances lock them in the same order.
            ORDER BY n.id;
        END IF;
        INSERT INTO turns (key, execution, number, checksum, body)
        SELECT m_key[t.m], t_execution[t.m], t_number[t.m], t_checksum[t.m], t_body[t.m]
        FROM unnest(m_wave) WITH ORDINALITY AS t (wave, m)
        WHERE t.wave = w AND t_number[t.m] IS NOT NULL AND v_code[t.m] = 0;
        IF c_member IS NOT NULL THEN
            UPDATE instances AS i SET
                status = CASE WHEN c.mask & 1 <> 0 THEN c_status[c.k] ELSE i.status END,
                execution = CASE WHEN c.mask & 2 <> 0 THEN c_execution[c.k] ELSE i.execution END,
                version = CASE WHEN c.mask & 4 <> 0 THEN c_version[c.k] ELSE i.version END,
                owed = CASE WHEN c.mask & 8 <> 0 THEN c_owed[c.k] ELSE i.owed END,
                wake_at_ms = CASE WHEN c.mask & 16 <> 0 THEN c_wake[c.k] ELSE i.wake_at_ms END,
                blocked = CASE WHEN c.mask & 32 <> 0 THEN c_blocked[c.k] ELSE i.blocked END,
                is_full = CASE WHEN c.mask & 64 <> 0 THEN c_full[c.k] ELSE i.is_full END,
                attributes = CASE WHEN c.mask & 128 <> 0 THEN c_attributes[c.k] ELSE i.attributes END,
                published = CASE WHEN c.mask & 256 <> 0 THEN c_published[c.k] ELSE i.published END,
                ended_ms = CASE WHEN c.mask & 512 <> 0 THEN c_ended[c.k] ELSE i.ended_ms END
            FROM unnest(c_mask) WITH ORDINALITY AS c (mask, k)
            WHERE m_wave[c_member[c.k]] = w AND v_code[c_member[c.k]] = 0 AND i.key = m_key[c_member[c.k]];
        END IF;
        -- A member whose id is taken gets the row as the members before it left it.
        IF v_taken_by IS NOT NULL THEN
            FOR r IN
                SELECT y.place, i AS taken FROM unnest(v_taken_by) WITH ORDINALITY AS y (m, place)
                JOIN unnest(m_key, m_wave) WITH ORDINALITY AS b (key, wave, m)
                    ON b.key = (v_taken[y.place]).key AND b.wave = w AND b.m < y.m AND v_code[b.m] = 0
                JOIN instances AS i ON i.key = b.key
                WHERE m_wave[y.m] = w
            LOOP
                v_taken[r.place] := r.taken;
            END LOOP;
        END IF;
        CONTINUE WHEN NOT p_more;
        IF x_member IS NOT NULL THEN
            INSERT INTO turns (key, execution, number, checksum, body)
            SELECT m_key[x.m], x.execution, x.number, x.checksum, x.body
            FROM unnest(x_member, x_execution, x_number, x_body, x_checksum) AS x (m, execution, number, body, checksum)
            WHERE m_wave[x.m] = w AND v_code[x.m] = 0;
        END IF;
        IF p_reindexes THEN
            DELETE FROM attributes AS a USING unnest(c_member, c_mask) AS c (m, mask)
            WHERE c.mask & 128 <> 0 AND m_wave[c.m] = w AND v_code[c.m] = 0 AND a.key = m_key[c.m];
        END IF;
        IF a_member IS NOT NULL THEN
            INSERT INTO attributes (key, name, order_key)
            SELECT m_key[a.m], a.name, a.order_key FROM unnest(a_member, a_send, a_name, a_order) AS a (m, send, name, order_key)
            WHERE a.send IS NULL AND m_wave[a.m] = w AND v_code[a.m] = 0;
        END IF;
        IF k_member IS NOT NULL THEN
            INSERT INTO continuations (key, execution, at_ms)
            SELECT m_key[k.m], k.execution, v_now FROM unnest(k_member, k_execution) AS k (m, execution)
            WHERE m_wave[k.m] = w AND v_code[k.m] = 0
            ON CONFLICT (key, execution) DO UPDATE SET at_ms = excluded.at_ms;
        END IF;

        --------------------------------------------------------------------------------- messages, tasks and requests
        IF d_member IS NOT NULL THEN
            DELETE FROM inbox AS b USING unnest(d_member, d_number) AS d (m, number)
            WHERE m_wave[d.m] = w AND v_code[d.m] = 0 AND b.shard = m_shard[d.m] AND b.number = d.number;
            GET DIAGNOSTICS v_count = ROW_COUNT;
            SELECT count(DISTINCT d.number) INTO v_other FROM unnest(d_member, d_number) AS d (m, number)
            WHERE m_wave[d.m] = w AND v_code[d.m] = 0;
            IF v_count <> v_other THEN
                RAISE EXCEPTION 'a message was deleted meanwhile' USING ERRCODE = '40001';
            END IF;
        END IF;
        IF s_member IS NOT NULL THEN
            UPDATE inbox AS b SET urgent = false FROM unnest(s_member, s_number) AS s (m, number)
            WHERE m_wave[s.m] = w AND v_code[s.m] = 0 AND b.shard = m_shard[s.m] AND b.number = s.number AND b.urgent;
        END IF;
        IF w_member IS NOT NULL THEN
            INSERT INTO tasks (key, execution, event, shard, state, holder, cancelled, attempt, due_ms, since_ms, heard_ms,
                interruptions, begun, name, tag, details, past, work)
            SELECT q.key, q.execution, q.event, q.shard, q.state, q.holder, q.cancelled, q.attempt, q.due, q.since, q.heard,
                q.interruptions, q.begun, q.name, q.tag, q.details, q.past, q.work
            FROM unnest(w_member, w_op, w_key, w_execution, w_event, w_shard, w_state, w_holder, w_cancelled, w_attempt,
                    w_due, w_since, w_heard, w_interruptions, w_begun, w_name, w_tag, w_details, w_past, w_work)
                AS q (m, op, key, execution, event, shard, state, holder, cancelled, attempt, due, since, heard,
                    interruptions, begun, name, tag, details, past, work)
            WHERE q.op = 1 AND m_wave[q.m] = w AND v_code[q.m] = 0
            ORDER BY q.key, q.execution, q.event
            ON CONFLICT (key, execution, event) DO UPDATE SET shard = excluded.shard, state = excluded.state,
                holder = excluded.holder, cancelled = excluded.cancelled, attempt = excluded.attempt,
                due_ms = excluded.due_ms, since_ms = excluded.since_ms, heard_ms = excluded.heard_ms,
                interruptions = excluded.interruptions, begun = excluded.begun, name = excluded.name, tag = excluded.tag,
                details = excluded.details, past = excluded.past, work = excluded.work;
            -- The holder may give its task back concurrently. Each statement evaluates the row as it is once the lock
            -- is acquired.
            UPDATE tasks AS y SET cancelled = true
            FROM unnest(w_member, w_op, w_key, w_execution, w_event) AS q (m, op, key, execution, event)
            WHERE q.op = 2 AND m_wave[q.m] = w AND v_code[q.m] = 0
                AND y.key = q.key AND y.execution = q.execution AND y.event = q.event
                AND y.state = 1 AND y.due_ms IS NOT NULL;
            DELETE FROM tasks AS y
            USING unnest(w_member, w_op, w_key, w_execution, w_event) AS q (m, op, key, execution, event)
            WHERE q.op >= 2 AND m_wave[q.m] = w AND v_code[q.m] = 0
                AND y.key = q.key AND y.execution = q.execution AND y.event = q.event
                AND (q.op = 3 OR y.state <> 1 OR y.due_ms IS NULL);
        END IF;
        IF r_member IS NOT NULL THEN
            WITH gone AS (
                DELETE FROM requests AS q USING unnest(r_member, r_number, r_body) AS y (m, number, body)
                WHERE m_wave[y.m] = w AND v_code[y.m] = 0 AND q.number = y.number
                RETURNING q.number, q.deadline_ms, y.body
            )
            INSERT INTO replies (number, deadline_ms, body) SELECT number, deadline_ms, body FROM gone;
        END IF;

        ------------------------------------------------------------------------------------------- outgoing messages
        CONTINUE WHEN o_member IS NULL;
        FOR g IN 0..p_stages LOOP
            IF g % 2 = 0 THEN
                CONTINUE WHEN NOT EXISTS (
                    SELECT 1 FROM unnest(o_member, o_stage) AS o (m, stage)
                    WHERE o.stage = g AND m_wave[o.m] = w AND v_code[o.m] = 0);
                FOR r IN
                    SELECT o.id, o.key FROM unnest(o_member, o_stage, o_replaces, o_id, o_key) WITH ORDINALITY
                        AS o (m, stage, replaces, id, key, number)
                    WHERE o.replaces AND o.stage = g AND m_wave[o.m] = w AND v_code[o.m] = 0 ORDER BY o.number
                LOOP
                    SELECT i.key INTO v_key FROM instances AS i WHERE i.id = r.id AND i.key <> r.key AND i.status >= 2;
                    IF FOUND THEN
                        PERFORM delete_family(v_key, 1000);
                    END IF;
                END LOOP;
                WITH new AS (
                    INSERT INTO instances (key, id, shard, name, version, status, execution, owed, wake_at_ms, blocked,
                        attributes, published, parent, created_ms, ended_ms, parent_key, is_full, checksum)
                    SELECT n.key, n.id, n.shard, n.name, n.version, n.status, n.execution, n.owed, n.wake, n.blocked,
                        n.attributes, n.published, n.parent, n.created, n.ended, n.parent_key, n.is_full, n.checksum
                    FROM unnest(n_member, n_send, n_key, n_id, n_shard, n_name, n_version, n_status, n_execution, n_owed,
                            n_wake, n_blocked, n_attributes, n_published, n_parent, n_created, n_ended, n_parent_key,
                            n_full, n_checksum)
                        AS n (m, send, key, id, shard, name, version, status, execution, owed, wake, blocked, attributes,
                            published, parent, created, ended, parent_key, is_full, checksum)
                    WHERE o_stage[n.send] = g AND m_wave[n.m] = w AND v_code[n.m] = 0
                    ORDER BY n.id
                    ON CONFLICT DO NOTHING
                    RETURNING key, shard, wake_at_ms
                ), told AS (
                    INSERT INTO inbox (shard, number, key, arrived_ms, parked, urgent, dedupe, body)
                    SELECT new.shard, v_numbers[2 * o.number - 1], new.key, v_now, new.wake_at_ms IS NOT NULL, false,
                        NULL, o.body
                    FROM unnest(o_member, o_stage, o_key, o_body) WITH ORDINALITY AS o (m, stage, key, body, number)
                    JOIN new ON new.key = o.key
                    WHERE o.stage = g AND m_wave[o.m] = w AND v_code[o.m] = 0
                    RETURNING number
                )
                SELECT array_agg(number) INTO v_some FROM told;
                v_done := v_done || v_some;
                IF a_member IS NOT NULL THEN
                    INSERT INTO attributes (key, name, order_key)
                    SELECT o_key[a.send], a.name, a.order_key
                    FROM unnest(a_member, a_send, a_name, a_order) AS a (m, send, name, order_key)
                    WHERE o_stage[a.send] = g AND m_wave[a.m] = w AND v_code[a.m] = 0
                        AND v_numbers[2 * a.send - 1] = ANY (v_some);
                END IF;
                -- Reports the outcome of the starts to their senders.
                FOR r IN
                    SELECT o.m, o.number, o.id, o.key, o.good, o.other, i.key AS taken
                    FROM unnest(o_member, o_stage, o_id, o_key, o_good, o_other) WITH ORDINALITY
                        AS o (m, stage, id, key, good, other, number)
                    LEFT JOIN instances AS i ON i.id = o.id
                    WHERE o.stage = g AND m_wave[o.m] = w AND v_code[o.m] = 0
                        AND (o.good IS NOT NULL OR o.other IS NOT NULL OR i.key IS DISTINCT FROM o.key)
                    ORDER BY o.number
                LOOP
                    IF r.taken IS NULL THEN
                        RAISE EXCEPTION 'the key % belongs to another instance', r.key USING ERRCODE = 'PR002';
                    END IF;
                    v_other := CASE WHEN r.taken <> r.key THEN 2 * r.number - 1 ELSE 2 * r.number END;
                    INSERT INTO inbox (shard, number, key, arrived_ms, parked, urgent, dedupe, body)
                    SELECT i.shard, v_numbers[v_other], i.key, v_now, false, false, NULL,
                        CASE WHEN r.taken <> r.key THEN r.other ELSE r.good END
                    FROM instances AS i
                    WHERE i.key = m_key[r.m] AND i.status < 2
                        AND CASE WHEN r.taken <> r.key THEN r.other IS NOT NULL
                                 ELSE r.good IS NOT NULL AND v_numbers[2 * r.number - 1] = ANY (v_some) END;
                    IF FOUND AND r.taken <> r.key THEN
                        v_done := v_done || v_numbers[v_other];
                    END IF;
                END LOOP;
            ELSE
                FOR r IN
                    SELECT o.number, i.key FROM unnest(o_member, o_stage, o_kind, o_id) WITH ORDINALITY
                        AS o (m, stage, kind, id, number)
                    JOIN instances AS i ON i.id = o.id
                    WHERE o.kind = 2 AND o.stage = g AND m_wave[o.m] = w AND v_code[o.m] = 0
                LOOP
                    o_key[r.number] := r.key;
                END LOOP;
                WITH put AS (
                    INSERT INTO inbox (shard, number, key, arrived_ms, parked, urgent, dedupe, body)
                    SELECT i.shard, v_numbers[2 * o.number - 1], i.key, v_now, false, o.urgent, o.dedupe, o.body
                    FROM unnest(o_member, o_stage, o_key, o_dedupe, o_urgent, o_body) WITH ORDINALITY
                        AS o (m, stage, key, dedupe, urgent, body, number)
                    JOIN instances AS i ON i.key = o.key AND i.status < 2
                    WHERE o.stage = g AND m_wave[o.m] = w AND v_code[o.m] = 0
                    ORDER BY o.number
                    ON CONFLICT (key, dedupe) DO NOTHING
                    RETURNING number
                )
                SELECT array_agg(number) INTO v_some FROM put;
                v_done := v_done || v_some;
                IF true = ANY (o_urgent) THEN
                    -- A repeated urgent message marks the stored one as urgent, unless the instance has ended.
                    UPDATE inbox AS b SET urgent = true
                    FROM unnest(o_member, o_stage, o_key, o_dedupe, o_urgent) AS o (m, stage, key, dedupe, urgent)
                    JOIN instances AS i ON i.key = o.key AND i.status < 2
                    WHERE o.urgent AND o.stage = g AND m_wave[o.m] = w AND v_code[o.m] = 0
                        AND b.key = o.key AND b.dedupe = o.dedupe AND NOT b.urgent;
                END IF;
                INSERT INTO inbox (shard, number, key, arrived_ms, parked, urgent, dedupe, body)
                SELECT me.shard, v_numbers[2 * q.number], me.key, v_now, false, false, NULL, q.body
                FROM (
                    SELECT o.m, o.number, CASE WHEN i.key IS NULL THEN o.absent WHEN i.status < 2 THEN o.good
                                               ELSE o.other END AS body
                    FROM unnest(o_member, o_stage, o_kind, o_key, o_good, o_absent, o_other) WITH ORDINALITY
                        AS o (m, stage, kind, key, good, absent, other, number)
                    LEFT JOIN instances AS i ON i.key = o.key
                    WHERE o.kind = 2 AND o.stage = g AND m_wave[o.m] = w AND v_code[o.m] = 0 AND o.good IS NOT NULL
                ) AS q
                JOIN instances AS me ON me.key = m_key[q.m] AND me.status < 2;
            END IF;
        END LOOP;
    END LOOP;

    IF o_member IS NOT NULL THEN
        SELECT array_agg(d.number ORDER BY o.number) INTO v_some
        FROM unnest(o_member) WITH ORDINALITY AS o (m, number)
        LEFT JOIN unnest(v_done) AS d (number) ON d.number = v_numbers[2 * o.number - 1];
        RETURN QUERY SELECT 0, 0::smallint, v_some, v_owned,
            NULL::uuid, NULL::text, NULL::smallint, NULL::text, NULL::text, NULL::smallint, NULL::bigint, NULL::boolean,
            NULL::bigint, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint,
            NULL::text, NULL::boolean, NULL::integer;
    END IF;
    IF NOT 0 = ALL (v_code) THEN
        RETURN QUERY SELECT y.m::integer, y.code, NULL::bigint[], NULL::smallint[],
            i.key, i.id, i.shard, i.name, i.version, i.status, i.execution, i.owed, i.wake_at_ms, i.blocked, i.attributes,
            i.published, i.parent, i.created_ms, i.ended_ms, i.parent_key, i.is_full, i.checksum
            FROM unnest(v_code) WITH ORDINALITY AS y (code, m)
            LEFT JOIN unnest(v_taken_by) WITH ORDINALITY AS b (m, place) ON b.m = y.m
            LEFT JOIN LATERAL (SELECT (v_taken[b.place]).*) AS i ON b.place IS NOT NULL
            WHERE y.code <> 0;
    END IF;
END
$$;
