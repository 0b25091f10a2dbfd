-- Attributes are searched by bytes that sort as their values do, so that one index serves equality, prefixes and ranges.
-- What version 3 indexed is indexed again from the rows of the instances.
DROP TABLE attributes;

CREATE TABLE attributes (
    key        BLOB NOT NULL,
    name       TEXT NOT NULL,
    order_key  BLOB NOT NULL
) STRICT;

CREATE INDEX attributes_by_order ON attributes (name, order_key, key);
CREATE INDEX attributes_by_instance ON attributes (key);
