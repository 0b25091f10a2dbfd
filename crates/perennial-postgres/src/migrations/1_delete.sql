-- Version 1: deletes instances, and rows that are no longer needed.
--
-- An instance with many turns is deleted immediately, with its id, messages, tasks and requests. Only its turns remain
-- until they are swept. Until then its key is in `graves`, which every statement that reads or writes turns checks.

-- Deletes turns of the executions before `p_before`, oldest first, and returns how many.
CREATE FUNCTION delete_turns(p_key uuid, p_before bigint, p_rows bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_deleted bigint;
BEGIN
    DELETE FROM turns WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM turns WHERE key = p_key AND execution < p_before ORDER BY execution, number LIMIT p_rows));
    GET DIAGNOSTICS v_deleted = ROW_COUNT;
    RETURN v_deleted;
END
$$;

-- Deletes the rows of an instance whose own row was deleted.
CREATE FUNCTION delete_belongings(p_key uuid) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    DELETE FROM inbox WHERE key = p_key;
    DELETE FROM tasks WHERE key = p_key;
    DELETE FROM requests WHERE key = p_key;
    DELETE FROM attributes WHERE key = p_key;
    DELETE FROM continuations WHERE key = p_key AND execution IN (
        SELECT execution FROM continuations WHERE key = p_key LIMIT 1000);
    PERFORM delete_turns(p_key, 9223372036854775807, 1000);
    IF EXISTS (SELECT 1 FROM turns WHERE key = p_key) OR EXISTS (SELECT 1 FROM continuations WHERE key = p_key) THEN
        INSERT INTO graves (key) VALUES (p_key) ON CONFLICT DO NOTHING;
    END IF;
END
$$;

-- Returns for each instance whether it was deleted (0), has not ended (1), or does not exist (2). With `p_force`,
-- instances that have not ended are deleted too. Senders lock the instance's row, so that no message remains after the
-- deletion.
CREATE FUNCTION delete_instances(p_keys uuid[], p_force boolean) RETURNS smallint[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_key uuid;
    v_outcomes smallint[] := '{}';
BEGIN
    FOREACH v_key IN ARRAY p_keys LOOP
        DELETE FROM instances WHERE key = v_key AND (status >= 2 OR p_force);
        IF FOUND THEN
            PERFORM delete_belongings(v_key);
            v_outcomes := v_outcomes || 0::smallint;
        ELSIF EXISTS (SELECT 1 FROM instances WHERE key = v_key) THEN
            v_outcomes := v_outcomes || 1::smallint;
        ELSE
            v_outcomes := v_outcomes || 2::smallint;
        END IF;
    END LOOP;
    RETURN v_outcomes;
END
$$;

-- Deletes an instance that has ended, with its ended children, level by level, up to a limit.
CREATE FUNCTION delete_family(p_key uuid, p_most bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_parents uuid[] := ARRAY[p_key];
    v_next integer := 1;
    v_left bigint := p_most;
    v_child uuid;
BEGIN
    DELETE FROM instances WHERE key = p_key AND status >= 2;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM delete_belongings(p_key);
    WHILE v_next <= cardinality(v_parents) LOOP
        FOR v_child IN
            SELECT key FROM instances WHERE parent_key = v_parents[v_next]::text AND status >= 2
            ORDER BY key LIMIT v_left FOR UPDATE
        LOOP
            DELETE FROM instances WHERE key = v_child;
            PERFORM delete_belongings(v_child);
            v_parents := v_parents || v_child;
            v_left := v_left - 1;
        END LOOP;
        v_next := v_next + 1;
    END LOOP;
END
$$;

-- Deletes turns of the executions before `p_execution`, but never of the current one. The owner of the instance's shard
-- calls it.
CREATE FUNCTION prune(p_key uuid, p_execution bigint, p_rows bigint, OUT o_rows bigint, OUT o_more boolean)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_before bigint;
BEGIN
    o_rows := 0;
    o_more := false;
    SELECT least(execution, p_execution) INTO v_before FROM instances WHERE key = p_key;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    o_rows := delete_turns(p_key, v_before, p_rows);
    o_more := EXISTS (SELECT 1 FROM turns WHERE key = p_key AND execution < v_before);
    IF NOT o_more THEN
        DELETE FROM continuations WHERE key = p_key AND execution <= v_before;
    END IF;
END
$$;

CREATE FUNCTION prune_executions(
    p_session uuid, p_shard smallint, p_key uuid, p_execution bigint, p_rows bigint,
    OUT o_rows bigint, OUT o_more boolean)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM 1 FROM sessions WHERE id = p_session FOR KEY SHARE;
    PERFORM check_owner(p_session, ARRAY[p_shard]);
    SELECT p.o_rows, p.o_more INTO o_rows, o_more FROM prune(p_key, p_execution, p_rows) AS p;
END
$$;

-- Deletes up to `p_rows` rows that are no longer needed. Concurrent sweeps skip each other's rows.
CREATE FUNCTION sweep(p_rows bigint, p_keep_ms bigint, p_at bigint, OUT o_rows bigint, OUT o_more boolean)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_now bigint := coalesce(p_at, now_ms());
    v_left bigint := p_rows;
    v_count bigint;
    v_key uuid;
    v_old record;
    v_pruned record;
BEGIN
    DELETE FROM requests WHERE number IN (
        SELECT number FROM requests WHERE deadline_ms <= v_now ORDER BY deadline_ms LIMIT v_left FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_left := v_left - v_count;
    DELETE FROM replies WHERE number IN (
        SELECT number FROM replies WHERE deadline_ms <= v_now ORDER BY deadline_ms LIMIT v_left FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_left := v_left - v_count;
    FOR v_key IN SELECT key FROM graves ORDER BY key LIMIT v_left FOR UPDATE SKIP LOCKED LOOP
        EXIT WHEN v_left <= 0;
        v_left := v_left - delete_turns(v_key, 9223372036854775807, v_left);
        DELETE FROM continuations WHERE key = v_key AND execution IN (
            SELECT execution FROM continuations WHERE key = v_key LIMIT p_rows);
        IF NOT EXISTS (SELECT 1 FROM turns WHERE key = v_key)
            AND NOT EXISTS (SELECT 1 FROM continuations WHERE key = v_key)
        THEN
            DELETE FROM graves WHERE key = v_key;
        END IF;
    END LOOP;
    IF p_keep_ms IS NOT NULL THEN
        FOR v_old IN
            SELECT key, execution FROM continuations WHERE at_ms <= v_now - p_keep_ms
            ORDER BY at_ms, key, execution LIMIT v_left FOR UPDATE SKIP LOCKED
        LOOP
            EXIT WHEN v_left <= 0;
            SELECT * INTO v_pruned FROM prune(v_old.key, v_old.execution, v_left);
            v_left := v_left - v_pruned.o_rows;
            IF NOT v_pruned.o_more THEN
                -- A row for an execution that the instance has not reached is deleted, or every sweep would find it
                -- again.
                DELETE FROM continuations WHERE key = v_old.key AND execution = v_old.execution;
            END IF;
        END LOOP;
    END IF;
    o_rows := p_rows - v_left;
    o_more := EXISTS (SELECT 1 FROM requests WHERE deadline_ms <= v_now)
        OR EXISTS (SELECT 1 FROM replies WHERE deadline_ms <= v_now)
        OR EXISTS (SELECT 1 FROM graves)
        OR (p_keep_ms IS NOT NULL AND EXISTS (SELECT 1 FROM continuations WHERE at_ms <= v_now - p_keep_ms));
END
$$;
