-- Overrides of a deleted namespace are marked as deleted in slices, as other rows of large deletions are (sql/0020).
alter table sweeps drop constraint sweeps_kind_check;
alter table sweeps add constraint sweeps_kind_check
  check (kind in ('keyspace', 'identity', 'role', 'permission', 'namespace'));
