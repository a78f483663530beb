-- oldest server: 0.1
-- transaction: none
-- The keys whose limits are counted under a key: read when that is erased.
create index concurrently keys_by_counter on keys (counts_as) where counts_as is not null;
