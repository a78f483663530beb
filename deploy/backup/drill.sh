#!/usr/bin/env bash
# Proves that a backup can be used: restores it into a database of its own, starts a server on another port, makes and verifies a key, and
# with DRILL_KEY_FILE verifies that key too. Then the database is dropped. It never touches the database of DATABASE_URL.
#   drill.sh <file of backup.sh> <URL of a Postgres where a database may be made>
# TOLLGATE is the command line (default: tollgate). TOLLGATE_VAULT_KEY, if set, must be that of the backup.
set -euo pipefail
[ $# = 2 ] || { echo "usage: drill.sh <file> <URL of a Postgres where a database may be made>" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
file=$1 admin=$2
name=tollgate_drill_$$_$(date +%s)
base=${admin%%\?*}
query=${admin#"$base"}
url=${base%/*}/$name$query
folder=$(mktemp -d)
server=
end() {
  [ -z "$server" ] || { kill -TERM "$server" 2> /dev/null || true; wait "$server" 2> /dev/null || true; }
  psql --no-psqlrc --quiet "$admin" -c "drop database if exists $name with (force)" || true
  rm -rf "$folder"
}
trap end EXIT
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 "$admin" -c "create database $name template template0"
"$here/restore.sh" "$file" "$url"

unset TOLLGATE_ROOT_KEY TOLLGATE_ROOT_KEY_FILE DATABASE_URL_FILE TOLLGATE_SOCKET TOLLGATE_METRICS_PORT
export DATABASE_URL=$url TOLLGATE_DATA_DIR=$folder/data HOST=127.0.0.1 PORT=${DRILL_PORT:-0}
tollgate=${TOLLGATE:-tollgate}
# Unquoted: it may be several words.
$tollgate serve > "$folder/log" 2>&1 &
server=$!
for _ in $(seq 600); do
  TOLLGATE_URL=$(sed -n 's/^Tollgate listens on \(http[^ ]*\).*/\1/p' "$folder/log")
  [ -z "$TOLLGATE_URL" ] || break
  kill -0 "$server" 2> /dev/null || break
  sleep 0.2
done
[ -n "$TOLLGATE_URL" ] || { echo 'the server does not start on the restored database:' >&2; cat "$folder/log" >&2; exit 1; }
export TOLLGATE_URL
$tollgate root-key rescue --save > "$folder/rescue"
export TOLLGATE_ROOT_KEY; TOLLGATE_ROOT_KEY=$(cat "$folder/data/root-key")
api=$($tollgate api create --name drill --json | sed -n 's/.*"apiId":[[:space:]]*"\([^"]*\)".*/\1/p')
$tollgate key create --api "$api" --json | sed -n 's/.*"key":[[:space:]]*"\([^"]*\)".*/\1/p' > "$folder/key"
$tollgate key verify - < "$folder/key" > "$folder/verified" || { echo 'a new key is not valid' >&2; cat "$folder/verified" >&2; exit 1; }
if [ -n "${DRILL_KEY_FILE:-}" ]; then
  $tollgate key verify - < "$DRILL_KEY_FILE" || { echo 'the key of DRILL_KEY_FILE is not valid in the backup' >&2; exit 1; }
fi
echo "the backup works: restored, served at $TOLLGATE_URL, keys verified"
