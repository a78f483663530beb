-- Keys of an identity in one API, in the order of lists: before, a list walked all keys of the table by id. Files 0026 to 0028
-- are apart so that changes of keys wait about a second for each with a million keys, not for all of them. Reads do not wait.
create index keys_live_by_identity on keys (identity_id, keyspace_id, id) where identity_id is not null and deleted_at is null;
