-- oldest server: 0.1
-- phase: contract
-- Each has its column at the beginning of another index (sql/0058, sql/0059), which serves what it served.
drop index keys_roles_by_role;
drop index keys_permissions_by_permission;
