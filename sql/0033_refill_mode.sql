-- oldest server: 0.1
-- How a key is refilled. Refills written through v1 add credits, those written through v2 set them. Whoever wrote the refill last
-- decides. Takes milliseconds: the default is not written to the rows.
alter table keys add column refill_sets boolean not null default false;
comment on column keys.refill_sets is 'True: a refill sets `remaining` to the amount if fewer are left. False: it adds the amount.';
