-- Since when a task is in its state, and when its current attempt last reported. Both are covered by the checksum of the
-- row, which is written again; rows of version 4 have neither.
ALTER TABLE tasks ADD COLUMN since_ms INTEGER;
ALTER TABLE tasks ADD COLUMN heard_ms INTEGER;
