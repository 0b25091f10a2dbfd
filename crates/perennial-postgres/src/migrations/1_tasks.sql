-- Version 1: tasks and their leases.

-- Queues tasks whose lease expired, and deletes those that were cancelled. Rows locked by another node are skipped.
CREATE FUNCTION end_leases(p_now bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM tasks WHERE state = 1 AND due_ms IS NOT NULL AND due_ms <= p_now) THEN
        RETURN;
    END IF;
    DELETE FROM tasks AS t USING (
        SELECT key, execution, event FROM tasks
        WHERE state = 1 AND due_ms IS NOT NULL AND due_ms <= p_now AND cancelled
        ORDER BY key, execution, event FOR UPDATE SKIP LOCKED
    ) AS o WHERE t.key = o.key AND t.execution = o.execution AND t.event = o.event;
    UPDATE tasks AS t SET
        interruptions = CASE WHEN o.is_live OR t.begun IS DISTINCT FROM t.holder THEN t.interruptions
                             ELSE t.interruptions + 1 END,
        begun = CASE WHEN o.is_live THEN t.begun ELSE '00000000-0000-0000-0000-000000000000'::uuid END,
        state = 0, holder = NULL, due_ms = NULL, since_ms = p_now, heard_ms = NULL
    FROM (
        SELECT l.key, l.execution, l.event,
            EXISTS (SELECT 1 FROM sessions AS s WHERE s.id = l.holder AND s.expires_ms >= p_now) AS is_live
        FROM tasks AS l
        WHERE l.state = 1 AND l.due_ms IS NOT NULL AND l.due_ms <= p_now AND NOT l.cancelled
        ORDER BY l.key, l.execution, l.event FOR UPDATE OF l SKIP LOCKED
    ) AS o WHERE t.key = o.key AND t.execution = o.execution AND t.event = o.event;
END
$$;

-- Leases queued tasks to a holder. A loose index scan finds the names, so that tasks which this holder cannot run are
-- skipped, however many there are.
CREATE FUNCTION take_tasks(
    p_holder uuid, p_names text[], p_prefixes text[], p_tags text[], p_limit bigint, p_lease bigint, p_at bigint)
RETURNS SETOF tasks
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_now bigint := coalesce(p_at, now_ms());
    v_until bigint := later_ms(v_now, p_lease);
    v_left bigint := p_limit;
    v_name text := NULL;
    v_tag text;
    v_count bigint;
BEGIN
    PERFORM end_leases(v_now);
    WHILE v_left > 0 LOOP
        IF v_name IS NULL THEN
            SELECT name INTO v_name FROM tasks WHERE state = 0 ORDER BY name LIMIT 1;
        ELSE
            SELECT name INTO v_name FROM tasks WHERE state = 0 AND name > v_name ORDER BY name LIMIT 1;
        END IF;
        EXIT WHEN v_name IS NULL;
        CONTINUE WHEN NOT v_name = ANY (p_names)
            AND NOT EXISTS (SELECT 1 FROM unnest(p_prefixes) AS p (prefix) WHERE starts_with(v_name, p.prefix));
        RETURN QUERY UPDATE tasks AS t SET state = 1, holder = p_holder, cancelled = false, due_ms = v_until,
                since_ms = v_now, heard_ms = NULL
            FROM (
                SELECT key, execution, event FROM tasks WHERE state = 0 AND name = v_name AND tag IS NULL
                ORDER BY name, tag, key, execution, event LIMIT v_left FOR UPDATE SKIP LOCKED
            ) AS q WHERE t.key = q.key AND t.execution = q.execution AND t.event = q.event RETURNING t.*;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_left := v_left - v_count;
        FOREACH v_tag IN ARRAY p_tags LOOP
            EXIT WHEN v_left <= 0;
            RETURN QUERY UPDATE tasks AS t SET state = 1, holder = p_holder, cancelled = false, due_ms = v_until,
                    since_ms = v_now, heard_ms = NULL
                FROM (
                    SELECT key, execution, event FROM tasks WHERE state = 0 AND name = v_name AND tag = v_tag
                    ORDER BY name, tag, key, execution, event LIMIT v_left FOR UPDATE SKIP LOCKED
                ) AS q WHERE t.key = q.key AND t.execution = q.execution AND t.event = q.event RETURNING t.*;
            GET DIAGNOSTICS v_count = ROW_COUNT;
            v_left := v_left - v_count;
        END LOOP;
    END LOOP;
END
$$;

-- Returns for each task: 0 kept, 1 cancelled, 2 gone. Evidence: 0 none, 1 begins, 2 healthy.
CREATE FUNCTION renew_tasks(
    p_holder uuid, p_keys uuid[], p_executions bigint[], p_events bigint[], p_details text[], p_evidence smallint[],
    p_lease bigint, p_at bigint)
RETURNS smallint[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_now bigint := coalesce(p_at, now_ms());
    v_cancelled boolean;
    v_renewals smallint[] := '{}';
BEGIN
    FOR q IN 1..cardinality(p_keys) LOOP
        UPDATE tasks SET due_ms = later_ms(v_now, p_lease),
            details = coalesce(p_details[q], details),
            heard_ms = CASE WHEN p_details[q] IS NULL THEN heard_ms ELSE v_now END,
            begun = CASE p_evidence[q] WHEN 1 THEN holder WHEN 2 THEN NULL ELSE begun END,
            interruptions = CASE p_evidence[q] WHEN 2 THEN 0 ELSE interruptions END
        WHERE key = p_keys[q] AND execution = p_executions[q] AND event = p_events[q] AND state = 1 AND holder = p_holder
        RETURNING cancelled INTO v_cancelled;
        v_renewals := v_renewals || (CASE WHEN NOT FOUND THEN 2 WHEN v_cancelled THEN 1 ELSE 0 END)::smallint;
    END LOOP;
    RETURN v_renewals;
END
$$;

-- Ends a holder's attempt: appends its result to the instance's inbox and deletes the row. `o_shard` is the shard of
-- the appended message.
CREATE FUNCTION finish_task(
    p_holder uuid, p_key uuid, p_execution bigint, p_event bigint, p_attempt bigint, p_body bytea, p_at bigint,
    OUT o_finished boolean, OUT o_shard smallint)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    -- Locks the instance first, as a deletion does, to avoid deadlocks.
    PERFORM 1 FROM instances WHERE key = p_key FOR KEY SHARE;
    DELETE FROM tasks
    WHERE key = p_key AND execution = p_execution AND event = p_event AND state = 1 AND holder = p_holder
        AND attempt = p_attempt;
    o_finished := FOUND;
    IF o_finished THEN
        INSERT INTO inbox (shard, number, key, arrived_ms, parked, urgent, dedupe, body)
        SELECT shard, nextval('inbox_numbers'), key, coalesce(p_at, now_ms()), false, false, NULL, p_body
        FROM instances WHERE key = p_key AND status < 2
        RETURNING shard INTO o_shard;
    END IF;
END
$$;

-- Returns the shards of the tasks that can be taken now.
CREATE FUNCTION give_back_tasks(p_holder uuid, p_keys uuid[], p_executions bigint[], p_events bigint[], p_at bigint)
RETURNS SETOF smallint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_now bigint := coalesce(p_at, now_ms());
BEGIN
    DELETE FROM tasks AS t USING unnest(p_keys, p_executions, p_events) AS q (key, execution, event)
    WHERE t.key = q.key AND t.execution = q.execution AND t.event = q.event
        AND t.state = 1 AND t.holder = p_holder AND t.cancelled;
    RETURN QUERY UPDATE tasks AS t SET state = 0, holder = NULL, due_ms = NULL, since_ms = v_now, heard_ms = NULL
        FROM unnest(p_keys, p_executions, p_events) AS q (key, execution, event)
        WHERE t.key = q.key AND t.execution = q.execution AND t.event = q.event
            AND t.state = 1 AND t.holder = p_holder AND NOT t.cancelled
        RETURNING t.shard;
END
$$;
