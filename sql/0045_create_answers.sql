-- oldest server: 0.1
-- Answers of creates, so that a call that is sent again gets the first one's answer: see src/api/idempotency/answers.ts.
create table create_answers (
  workspace_id text collate "C" not null references workspaces (id),
  fingerprint  bytea  not null,
  attempt      text   collate "C" not null,
  writer       text   collate "C" not null,
  body         bytea  not null,
  sealed       bytea  not null,
  expires_at   bigint not null,
  primary key (workspace_id, fingerprint, attempt)
);
comment on table create_answers is 'Creates that were carried out. Nothing in it can be read without the root key that made the call.';
comment on column create_answers.fingerprint is 'Keyed hash of the path, and of the Idempotency-Key or else the body.';
comment on column create_answers.attempt is 'Empty = the call has an Idempotency-Key. Else distinct: two equal creates may both be meant.';
comment on column create_answers.writer is 'The thread that makes the attempt.';
comment on column create_answers.body is 'Keyed hash of the body.';
comment on column create_answers.sealed is 'The answer, encrypted.';
create index create_answers_by_age on create_answers (workspace_id, expires_at);
