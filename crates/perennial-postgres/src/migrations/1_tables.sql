-- Version 1: tables and indexes. Text is compared by its bytes (COLLATE "C"), as everywhere in Perennial.
--
-- A later version never changes a function that a running node calls: it adds one under another name.

CREATE TABLE meta (
    version  integer NOT NULL,
    -- The oldest version of the schema that a program may know and still work here.
    oldest   integer NOT NULL,
    alone    boolean NOT NULL DEFAULT true PRIMARY KEY CHECK (alone)
);

-- Half of each page stays free, so that the next version of a row fits beside it.
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
-- Most instances complete in the end; a list of those goes by key and finds them soon.
CREATE INDEX instances_by_status ON instances (status, key) WHERE status <> 2;
-- What has ended is counted and pruned by this.
CREATE INDEX instances_ended ON instances (status, ended_ms) WHERE status >= 2 OR ended_ms IS NOT NULL;
-- What an owner looks for in its shards.
CREATE INDEX instances_owed ON instances (shard, key) WHERE owed AND status < 2;
CREATE INDEX instances_due ON instances (shard, wake_at_ms, key) WHERE wake_at_ms IS NOT NULL AND status < 2;
CREATE INDEX instances_blocked ON instances (shard, key) WHERE blocked IS NOT NULL;

-- Rows are inserted and, in the end, deleted; never changed.
CREATE TABLE turns (
    key        uuid    NOT NULL,
    execution  bigint  NOT NULL,
    number     bigint  NOT NULL,
    checksum   integer NOT NULL,
    body       bytea   NOT NULL,
    PRIMARY KEY (key, execution, number)
);

-- Numbers are never given twice, and become visible in any order.
CREATE SEQUENCE inbox_numbers;

CREATE TABLE inbox (
    shard       smallint NOT NULL,
    number      bigint   NOT NULL,
    key         uuid     NOT NULL,
    arrived_ms  bigint   NOT NULL,
    parked      boolean  NOT NULL, -- only a load shows it
    urgent      boolean  NOT NULL, -- a blocked instance looks at it, too
    dedupe      text     COLLATE "C",
    body        bytea    NOT NULL,
    PRIMARY KEY (shard, number)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Messages without a key for deduplication never collide: null differs from null.
CREATE UNIQUE INDEX inbox_by_instance ON inbox (key, dedupe);

-- The attributes of instances once more, to be searched by: the beginning of the bytes that sort as their values do.
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
    holder         uuid,              -- whose lease it is
    cancelled      boolean  NOT NULL, -- leased, but nobody waits for it
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

-- Tasks that a node cannot run do not stand in the way of one that looks for work.
CREATE INDEX tasks_queued ON tasks (name, tag, key, execution, event) WHERE state = 0;
-- Leases that run out. Those of an owner have no end and are not in it.
CREATE INDEX tasks_by_lease ON tasks (due_ms) WHERE state = 1 AND due_ms IS NOT NULL;
CREATE INDEX tasks_waiting ON tasks (due_ms) WHERE state = 2;
CREATE INDEX tasks_by_holder ON tasks (holder) WHERE state = 1;

CREATE SEQUENCE request_numbers;

CREATE TABLE requests (
    number        bigint   NOT NULL PRIMARY KEY,
    key           uuid     NOT NULL,
    shard         smallint NOT NULL,
    deadline_ms   bigint   NOT NULL,
    after_number  bigint, -- the sender's message that it follows
    body          bytea    NOT NULL
);

CREATE INDEX requests_by_shard ON requests (shard, number);
CREATE INDEX requests_by_instance ON requests (key);
CREATE INDEX requests_by_deadline ON requests (deadline_ms);

CREATE TABLE replies (
    number       bigint NOT NULL PRIMARY KEY, -- the request's
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
    session        uuid,                -- who owns it
    epoch          bigint   NOT NULL,   -- how often its owner has changed
    unclean_ends   bigint   NOT NULL,
    note           bytea,
    gaps           bigint[] NOT NULL,   -- from, until, from, until, …
    idle_since_ms  bigint               -- since when no lane has owned it
) WITH (fillfactor = 50);

CREATE INDEX shards_by_session ON shards (session) WHERE session IS NOT NULL;

INSERT INTO shards (shard, epoch, unclean_ends, gaps) SELECT shard, 0, 0, '{}' FROM generate_series(0, 255) AS shard;

CREATE TABLE settings (
    name   text  COLLATE "C" NOT NULL PRIMARY KEY,
    value  bytea NOT NULL
);

-- Instances that were deleted and have turns left to be swept.
CREATE TABLE graves (
    key  uuid NOT NULL PRIMARY KEY
);

-- When executions began that were not the first, as long as turns of those before them may be stored.
CREATE TABLE continuations (
    key        uuid   NOT NULL,
    execution  bigint NOT NULL,
    at_ms      bigint NOT NULL,
    PRIMARY KEY (key, execution)
);

CREATE INDEX continuations_by_time ON continuations (at_ms, key, execution);

-- The store's clock, at the moment of the call.
CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT floor(extract(epoch FROM pg_catalog.clock_timestamp()) * 1000)::bigint $$;

-- `a + b` for times that may be at the end of all time.
CREATE FUNCTION later_ms(a bigint, b bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN a > 9223372036854775807 - b THEN 9223372036854775807 ELSE a + b END $$;
