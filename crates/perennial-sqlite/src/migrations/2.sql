-- An instance that ended under version 1 did not say when. It counts as ended now: what is pruned by age is then kept too
-- long rather than not long enough.
ALTER TABLE instances ADD COLUMN ended_ms INTEGER;
UPDATE instances SET ended_ms = CAST(unixepoch('subsec') * 1000 AS INTEGER) WHERE status >= 2;

-- The key that its parent link names, as the link spells it.
ALTER TABLE instances ADD COLUMN parent_key TEXT;
UPDATE instances SET parent_key = json_extract(parent, '$.key') WHERE json_valid(parent);
CREATE INDEX instances_by_parent ON instances (parent_key, key) WHERE parent_key IS NOT NULL;

-- What has ended is counted and pruned by this. It is written when an instance ends, and by no step before.
CREATE INDEX instances_ended ON instances (status, ended_ms) WHERE status >= 2 OR ended_ms IS NOT NULL;

-- Messages that nobody reads before their time come: only a load shows them. The index passes over them, however many
-- there are.
ALTER TABLE inbox ADD COLUMN parked INTEGER NOT NULL DEFAULT 0; -- 0 or 1
CREATE INDEX inbox_unparked ON inbox (number) WHERE parked = 0;

-- The attributes of instances once more, to be searched by. Values are JSON text.
CREATE TABLE attributes (
    key    BLOB NOT NULL,
    name   TEXT NOT NULL,
    value  TEXT NOT NULL
) STRICT;

CREATE INDEX attributes_by_value ON attributes (name, value, key);
CREATE INDEX attributes_by_instance ON attributes (key);

CREATE TABLE tasks (
    key            BLOB    NOT NULL,
    execution      INTEGER NOT NULL,
    event          INTEGER NOT NULL,
    shard          INTEGER NOT NULL,
    state          INTEGER NOT NULL, -- 0 queued, 1 leased, 2 waiting
    holder         BLOB,             -- whose lease it is
    cancelled      INTEGER NOT NULL, -- 0 or 1; leased, but nobody waits for it
    attempt        INTEGER NOT NULL,
    due_ms         INTEGER,
    details        TEXT,             -- JSON
    interruptions  INTEGER NOT NULL,
    name           TEXT    NOT NULL,
    tag            TEXT,
    work           BLOB
) STRICT;

CREATE UNIQUE INDEX tasks_by_event ON tasks (key, execution, event);
-- What nobody here can run stands in the way of nobody who looks for work. A lease that is renewed leaves it alone.
CREATE INDEX tasks_by_state ON tasks (state, name, tag, key, execution, event);

-- Leases that run out. Those of an owner have no end and are not in it.
CREATE INDEX tasks_by_lease ON tasks (due_ms) WHERE state = 1 AND due_ms IS NOT NULL;

-- Numbers are never given twice: who waits for an answer must not get another one's.
CREATE TABLE asks (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    key          BLOB    NOT NULL,
    shard        INTEGER NOT NULL,
    deadline_ms  INTEGER NOT NULL,
    body         BLOB    NOT NULL
) STRICT;

CREATE INDEX asks_by_instance ON asks (key);
CREATE INDEX asks_by_deadline ON asks (deadline_ms);

CREATE TABLE answers (
    number       INTEGER PRIMARY KEY, -- the request's
    deadline_ms  INTEGER NOT NULL,
    body         BLOB    NOT NULL
) STRICT;

CREATE INDEX answers_by_deadline ON answers (deadline_ms);

CREATE TABLE notes (
    name  TEXT NOT NULL PRIMARY KEY,
    body  BLOB NOT NULL
) STRICT;
