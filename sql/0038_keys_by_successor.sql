-- oldest server: 0.1
-- transaction: none
-- The keys that spend the credits of a key: read when that is rerolled again or erased.
create index concurrently keys_by_successor on keys (successor_id) where successor_id is not null;
