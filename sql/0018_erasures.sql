-- Erasure of a person: each of its names (external id, ids of identity and keys) gets a random pseudonym that takes its
-- place in what is kept. A name stands here as text until everything that was stored is swept, then as a hash only, for
-- what arrives late: counts in the memory or the data dir of a server. After some days the hash goes too.
create table erasures (
  workspace_id text collate "C" not null references workspaces (id),
  name_hash    bytea  not null,
  name_mark    bigint not null,
  kind         text   not null check (kind in ('external', 'identity', 'key')),
  name         text collate "C",
  pseudonym    text collate "C" not null,
  subject      text collate "C" not null,
  api_id       text collate "C",
  created_at   bigint not null,
  primary key (workspace_id, name_hash)
);
comment on column erasures.name is 'Null = swept: nothing stored holds it any more.';
comment on column erasures.subject is 'The pseudonym of the whole erasure, the same for all names of a person.';
comment on column erasures.api_id is 'Of a key: who may erase keys of that API may ask for its erasure again.';
create index erasures_unfinished on erasures (subject) where name is not null;
create index erasures_by_mark on erasures (name_mark);
comment on column erasures.name_mark is 'A short keyed hash, which costs a tenth: only of what has it, name_hash is compared.';

insert into settings (name, value) values ('erasure_salt', gen_random_uuid()::text || gen_random_uuid()::text)
    on conflict do nothing;

create function erased_hash(p_name text) returns bytea
language sql stable as $$
  select sha256(convert_to((select value from settings where name = 'erasure_salt') || p_name, 'UTF8'))
$$;

create function erased_mark(p_name text) returns bigint
language sql stable as $$
  select hashtextextended(p_name, (select hashtextextended(value, 0) from settings where name = 'erasure_salt'))
$$;

-- Names with the pseudonyms of those that are erased, for counts about to be added. Who erases holds the same lock alone
-- while it adds names: so counts are added before, and are swept, or after, and get the pseudonym.
-- p_workspaces, p_places: the workspace of p_names[i] is p_workspaces[p_places[i]]; one place is that of all.
create function erased_names(p_workspaces text[], p_places integer[], p_names text[]) returns text[]
language plpgsql volatile as $$
declare
  seed bigint;
begin
  perform pg_advisory_xact_lock_shared(8317504812);
  if cardinality(p_names) = 0 or not exists (select from erasures) then
    return p_names;
  end if;
  -- As erased_mark, which would look for the salt once for each name.
  select hashtextextended(value, 0) into seed from settings where name = 'erasure_salt';
  -- As a rule none of them is erased.
  if not exists (select from unnest(p_names) as n (name)
                   join erasures e on e.name_mark = hashtextextended(n.name, seed)) then
    return p_names;
  end if;
  return (
    select array_agg(coalesce(e.pseudonym, n.name) order by n.at)
      from unnest(p_names) with ordinality as n (name, at)
      left join erasures e on e.name_mark = hashtextextended(n.name, seed)
       and e.workspace_id = p_workspaces[coalesce(p_places[n.at::integer], p_places[1])]
       and e.name_hash = erased_hash(n.name));
end
$$;

-- The same for tag sets, each an array as text.
create function erased_tags(p_workspaces text[], p_tag_sets text[]) returns text[]
language plpgsql volatile as $$
begin
  perform pg_advisory_xact_lock_shared(8317504812);
  if cardinality(p_tag_sets) = 0 or not exists (select from erasures) then
    return p_tag_sets;
  end if;
  return (
    select array_agg(erased_names(array[p_workspaces[s.at::integer]], array[1], s.tags::text[])::text order by s.at)
      from unnest(p_tag_sets) with ordinality as s (tags, at));
end
$$;
