-- Overrides of every identifier that `ratelimits.limit` takes: 1024 characters may be more bytes than an entry of an index may
-- have. The digest is no protection; whoever makes two identifiers with the same one gets the second in place of the first.
alter table ratelimit_overrides drop constraint ratelimit_overrides_namespace_id_identifier_key;
create unique index ratelimit_overrides_by_identifier on ratelimit_overrides (namespace_id, md5(identifier));
