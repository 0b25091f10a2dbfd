-- Whether senders are refused, as the instance's owner decided.
ALTER TABLE instances ADD COLUMN full INTEGER NOT NULL DEFAULT 0; -- 0 or 1

-- Covers the columns that never change. Rows of version 2 get theirs when they are brought here.
ALTER TABLE instances ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;

-- What chains a turn to the one before it. Turns of version 2 have none, which is written as 0.
ALTER TABLE turns ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;

-- When a message arrived, and whether a blocked instance has to look at it at once. Messages of version 2 arrived before
-- every other.
ALTER TABLE inbox ADD COLUMN arrived_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE inbox ADD COLUMN urgent INTEGER NOT NULL DEFAULT 0; -- 0 or 1

-- Covers the columns that never change. Rows of version 2 have none.
ALTER TABLE inbox ADD COLUMN checksum INTEGER;

-- Sessions are kept for readers and for other processes; leases are renewed in memory. Whoever migrates is the only one
-- at work, so there is nothing to take over.
DROP TABLE sessions;
DROP TABLE shards;

CREATE TABLE sessions (
    id         BLOB    NOT NULL PRIMARY KEY,
    role       TEXT    NOT NULL, -- node, lane or maintenance
    node       BLOB    NOT NULL, -- the session of the process's node
    lease_ms   INTEGER NOT NULL,
    opened_ms  INTEGER NOT NULL,
    seen_ms    INTEGER NOT NULL, -- when it was known to be alive; up to a third of its lease behind
    info       BLOB    NOT NULL
) STRICT, WITHOUT ROWID;

-- A shard that was owned once has a row for ever, whoever owns it.
CREATE TABLE shards (
    shard          INTEGER PRIMARY KEY,
    session        BLOB,             -- who owns it
    epoch          INTEGER NOT NULL, -- how often its owner has changed
    unclean_ends   INTEGER NOT NULL,
    note           BLOB,
    gaps           TEXT    NOT NULL, -- JSON
    idle_since_ms  INTEGER           -- since when no lane has owned it
) STRICT;

CREATE INDEX shards_by_session ON shards (session) WHERE session IS NOT NULL;

-- The attempts that failed, as JSON.
ALTER TABLE tasks ADD COLUMN past TEXT;
-- The node that began an attempt with care, because a process had ended under the activity.
ALTER TABLE tasks ADD COLUMN begun BLOB;
-- Covers all other columns. Rows of version 2 have none.
ALTER TABLE tasks ADD COLUMN checksum INTEGER;

-- What a holder was given, if the answer was lost. A lease that is renewed leaves it alone.
CREATE INDEX tasks_by_holder ON tasks (holder, key, execution, event) WHERE state = 1;

ALTER TABLE asks RENAME TO requests;
ALTER TABLE requests ADD COLUMN after_number INTEGER; -- the sender's message that it follows
ALTER TABLE requests ADD COLUMN checksum INTEGER; -- covers all other columns
DROP INDEX asks_by_instance;
DROP INDEX asks_by_deadline;
CREATE INDEX requests_by_instance ON requests (key);
CREATE INDEX requests_by_deadline ON requests (deadline_ms);

ALTER TABLE answers RENAME TO replies;
ALTER TABLE replies ADD COLUMN checksum INTEGER; -- covers all other columns
DROP INDEX answers_by_deadline;
CREATE INDEX replies_by_deadline ON replies (deadline_ms);

-- What was noted under version 2 concerned a process that is gone.
DROP TABLE notes;

CREATE TABLE settings (
    name   TEXT NOT NULL PRIMARY KEY,
    value  BLOB NOT NULL
) STRICT;

-- Instances that were deleted and have turns left to be swept.
CREATE TABLE graves (
    key  BLOB NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- When executions began that were not the first, which is when the ones before them were continued as new, as long as turns
-- of those may be stored. Under version 2 nobody noted it: what is old counts as continued now, and is kept too long
-- rather than not long enough.
CREATE TABLE continuations (
    key        BLOB    NOT NULL,
    execution  INTEGER NOT NULL,
    at_ms      INTEGER NOT NULL,
    PRIMARY KEY (key, execution)
) STRICT, WITHOUT ROWID;

CREATE INDEX continuations_by_time ON continuations (at_ms);

INSERT INTO continuations (key, execution, at_ms)
    SELECT key, execution, CAST(unixepoch('subsec') * 1000 AS INTEGER) FROM instances WHERE execution > 1;

-- Rows whose key was damaged so that it is none any more. There are none but in a damaged file.
CREATE INDEX instances_odd ON instances (key) WHERE length(key) <> 16;
