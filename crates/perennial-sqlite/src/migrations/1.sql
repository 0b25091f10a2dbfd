-- Rows are found by key or by id; everything else that is searched has an index over those rows only that can be found
-- by it. An ordinary step changes none of these columns and so writes none of these indexes.
CREATE TABLE instances (
    key         BLOB    NOT NULL,
    id          TEXT    NOT NULL,
    shard       INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    version     TEXT    NOT NULL,
    status      INTEGER NOT NULL, -- 0 pending, 1 running, 2 completed, 3 failed, 4 cancelled, 5 terminated
    execution   INTEGER NOT NULL,
    owed        INTEGER NOT NULL, -- 0 or 1
    wake_at_ms  INTEGER,
    blocked     TEXT,             -- JSON
    attributes  TEXT,             -- JSON; null if there are none
    published   TEXT,             -- JSON
    parent      TEXT,             -- JSON
    created_ms  INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX instances_by_key ON instances (key);
CREATE UNIQUE INDEX instances_by_id ON instances (id);
CREATE INDEX instances_by_name ON instances (name, key);
-- Most instances complete in the end; who looks for those scans by key and finds them soon.
CREATE INDEX instances_by_status ON instances (status, key) WHERE status <> 2;
-- Whoever asks what is owed or due needs no more columns than these.
CREATE INDEX instances_owed ON instances (key, shard, owed, status) WHERE owed = 1 AND status < 2;
CREATE INDEX instances_due ON instances (wake_at_ms, key, shard, status) WHERE wake_at_ms IS NOT NULL AND status < 2;
CREATE INDEX instances_blocked ON instances (key) WHERE blocked IS NOT NULL;

-- A table with row ids, because rows of a kilobyte or more would not fit into the pages of an index; its rows are
-- appended, whatever the instance.
CREATE TABLE turns (
    key        BLOB    NOT NULL,
    execution  INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    body       BLOB    NOT NULL
) STRICT;

CREATE UNIQUE INDEX turns_by_number ON turns (key, execution, number);

-- Numbers are never given twice: who remembers a number must not take a later message for it.
CREATE TABLE inbox (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    key     BLOB    NOT NULL,
    shard   INTEGER NOT NULL,
    dedupe  TEXT,
    body    BLOB    NOT NULL
) STRICT;

-- Messages without a key for deduplication never collide: null differs from null.
CREATE UNIQUE INDEX inbox_by_instance ON inbox (key, dedupe);

CREATE TABLE sessions (
    id         BLOB    NOT NULL PRIMARY KEY,
    node       TEXT    NOT NULL,
    lease_ms   INTEGER NOT NULL,
    opened_ms  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE shards (
    shard    INTEGER PRIMARY KEY,
    session  BLOB NOT NULL
) STRICT;
