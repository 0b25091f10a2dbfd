-- Version 1: tables and indexes. Text is compared by its bytes (COLLATE "C"), as everywhere in Perennial.
--
-- A later version never changes a function that a running node calls. It adds a function with another name. Nodes also insert
-- into `turns` and `instances` and update `instances` themselves: new columns need defaults.

CREATE TABLE meta (
    version  integer NOT NULL,
    -- A program that supports at least this schema version can use the store.
    oldest   integer NOT NULL,
    alone    boolean NOT NULL DEFAULT true PRIMARY KEY CHECK (alone)
);

-- Half of each page stays free, so that an updated row fits on the same page and needs no index entries.
CREATE TABLE instances (
    key         uuid     NOT NULL PRIMARY KEY,
    id          text     COLLATE "C" NOT NULL,
    shard       smallint NOT NULL,
    name        text     COLLATE "C" NOT NULL,
    version     text     COLLATE "C" NOT NULL,
    status      smallint NOT NULL, -- 0 pending, 1 running, 2 completed, 3 failed, 4 cancelled, 5 terminated
    execution   bigint   NOT NULL,
    owed        boolean  NOT NULL,
    wake_at_ms  bigint,
    blocked     text,              -- JSON
    attributes  text,              -- JSON; null if there are none
    published   text,              -- JSON
    parent      text,              -- JSON
    created_ms  bigint   NOT NULL,
    ended_ms    bigint,
    parent_key  text     COLLATE "C", -- the key that the parent link names
    is_full     boolean  NOT NULL,
    checksum    integer  NOT NULL
) WITH (fillfactor = 50);

CREATE UNIQUE INDEX instances_by_id ON instances (id);
CREATE INDEX instances_by_name ON instances (name, key);
CREATE INDEX instances_by_parent ON instances (parent_key, key) WHERE parent_key IS NOT NULL;
-- Leaves out completed instances, which are the majority: a list of those scans the primary key and finds them soon.
CREATE INDEX instances_by_status ON instances (status, key) WHERE status <> 2;
-- Used to count and prune ended instances.
CREATE INDEX instances_ended ON instances (status, ended_ms) WHERE status >= 2 OR ended_ms IS NOT NULL;
-- Used by the passes of an owner.
CREATE INDEX instances_owed ON instances (shard, key) WHERE owed AND status < 2;
CREATE INDEX instances_due ON instances (shard, wake_at_ms, key) WHERE wake_at_ms IS NOT NULL AND status < 2;
CREATE INDEX instances_blocked ON instances (shard, key) WHERE blocked IS NOT NULL;

-- Rows are inserted and eventually deleted, but never updated.
CREATE TABLE turns (
    key        uuid    NOT NULL,
    execution  bigint  NOT NULL,
    number     bigint  NOT NULL,
    checksum   integer NOT NULL,
    body       bytea   NOT NULL,
    PRIMARY KEY (key, execution, number)
);

-- Numbers are never reused. They may become visible in any order.
CREATE SEQUENCE inbox_numbers;

CREATE TABLE inbox (
    shard       smallint NOT NULL,
    number      bigint   NOT NULL,
    key         uuid     NOT NULL,
    arrived_ms  bigint   NOT NULL,
    parked      boolean  NOT NULL, -- returned only by a load
    urgent      boolean  NOT NULL, -- delivered even if the instance is blocked
    dedupe      text     COLLATE "C",
    body        bytea    NOT NULL,
    PRIMARY KEY (shard, number)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Messages without a deduplication key never conflict, because nulls are distinct.
CREATE UNIQUE INDEX inbox_by_instance ON inbox (key, dedupe);

-- The index for searches by attribute: a prefix of the bytes that sort as the value does.
CREATE TABLE attributes (
    key        uuid  NOT NULL,
    name       text  COLLATE "C" NOT NULL,
    order_key  bytea NOT NULL,
    PRIMARY KEY (key, name)
);

CREATE INDEX attributes_by_order ON attributes (name, order_key, key);

CREATE TABLE tasks (
    key            uuid     NOT NULL,
    execution      bigint   NOT NULL,
    event          bigint   NOT NULL,
    shard          smallint NOT NULL,
    state          smallint NOT NULL, -- 0 queued, 1 leased, 2 waiting
    holder         uuid,              -- the session that holds the lease
    cancelled      boolean  NOT NULL, -- leased, but the result is no longer needed
    attempt        bigint   NOT NULL,
    due_ms         bigint,
    since_ms       bigint,
    heard_ms       bigint,
    interruptions  bigint   NOT NULL,
    begun          uuid,
    name           text     COLLATE "C" NOT NULL,
    tag            text     COLLATE "C",
    details        text,              -- JSON
    past           text,              -- JSON
    work           bytea,
    PRIMARY KEY (key, execution, event)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Starts with the name, so that a node skips tasks that it cannot run.
CREATE INDEX tasks_queued ON tasks (name, tag, key, execution, event) WHERE state = 0;
-- Leases that expire. An owner's leases do not expire and are not in this index.
CREATE INDEX tasks_by_lease ON tasks (due_ms) WHERE state = 1 AND due_ms IS NOT NULL;
CREATE INDEX tasks_waiting ON tasks (due_ms) WHERE state = 2;
CREATE INDEX tasks_by_holder ON tasks (holder) WHERE state = 1;

CREATE SEQUENCE request_numbers;

CREATE TABLE requests (
    number        bigint   NOT NULL PRIMARY KEY,
    key           uuid     NOT NULL,
    shard         smallint NOT NULL,
    deadline_ms   bigint   NOT NULL,
    after_number  bigint, -- the sender's last message before the request
    body          bytea    NOT NULL
);

CREATE INDEX requests_by_shard ON requests (shard, number);
CREATE INDEX requests_by_instance ON requests (key);
CREATE INDEX requests_by_deadline ON requests (deadline_ms);

CREATE TABLE replies (
    number       bigint NOT NULL PRIMARY KEY, -- the number of the request
    deadline_ms  bigint NOT NULL,
    body         bytea  NOT NULL
);

CREATE INDEX replies_by_deadline ON replies (deadline_ms);

CREATE TABLE sessions (
    id          uuid   NOT NULL PRIMARY KEY,
    role        text   NOT NULL, -- node, lane or maintenance
    node        uuid   NOT NULL,
    lease_ms    bigint NOT NULL,
    opened_ms   bigint NOT NULL,
    expires_ms  bigint NOT NULL,
    info        bytea  NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE shards (
    shard          smallint NOT NULL PRIMARY KEY,
    session        uuid,                -- the owner
    epoch          bigint   NOT NULL,   -- increases with every change of the owner
    unclean_ends   bigint   NOT NULL,
    note           bytea,
    gaps           bigint[] NOT NULL,   -- from, until, from, until, …
    idle_since_ms  bigint               -- when the last lane released or lost it
) WITH (fillfactor = 50);

CREATE INDEX shards_by_session ON shards (session) WHERE session IS NOT NULL;

INSERT INTO shards (shard, epoch, unclean_ends, gaps) SELECT shard, 0, 0, '{}' FROM generate_series(0, 255) AS shard;

CREATE TABLE settings (
    name   text  COLLATE "C" NOT NULL PRIMARY KEY,
    value  bytea NOT NULL
);

-- Deleted instances whose turns have not been swept yet.
CREATE TABLE graves (
    key  uuid NOT NULL PRIMARY KEY
);

-- The start times of executions other than the first, as long as turns of earlier executions may be stored.
CREATE TABLE continuations (
    key        uuid   NOT NULL,
    execution  bigint NOT NULL,
    at_ms      bigint NOT NULL,
    PRIMARY KEY (key, execution)
);

CREATE INDEX continuations_by_time ON continuations (at_ms, key, execution);

-- The store's clock at the time of the call.
CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT floor(extract(epoch FROM pg_catalog.clock_timestamp()) * 1000)::bigint $$;

-- `a + b`, saturating at the largest time.
CREATE FUNCTION later_ms(a bigint, b bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN a > 9223372036854775807 - b THEN 9223372036854775807 ELSE a + b END $$;
