CREATE TABLE prices (item text PRIMARY KEY, price bigint NOT NULL);
-- `token` is the greatest fencing token that has written the row.
CREATE TABLE stock (
    item text PRIMARY KEY,
    amount bigint NOT NULL,
    revenue bigint NOT NULL DEFAULT 0,
    token bigint NOT NULL DEFAULT 0
);
