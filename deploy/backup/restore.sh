#!/usr/bin/env bash
# Restores a file of backup.sh into a new, empty database, all of it or nothing, and compares the numbers of rows with its manifest.
# --revoked-since <list>: a list of revocations.sh. What it names stays revoked. Or a time, with FROM_DATABASE_URL = the database that the
# list is read from. Start servers afterwards.
set -euo pipefail
usage() { echo "usage: restore.sh [--revoked-since <list or time>] <file> <URL of a new database>" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
revoked=
if [ "${1:-}" = --revoked-since ]; then
  [ $# -ge 2 ] || usage
  revoked=$2
  shift 2
fi
[ $# = 2 ] || usage
file=$1 url=$2
query() { psql --no-psqlrc --quiet --no-align --tuples-only --set ON_ERROR_STOP=1 "$url" "$@"; }

[ -r "$file" ] || { echo "$file cannot be read" >&2; exit 1; }
[ -r "$file.manifest" ] || { echo "$file.manifest is missing: it has the checksum and the numbers of rows" >&2; exit 1; }
said=$(sed -n 's/^sha256 //p' "$file.manifest")
[ "$(sha256sum "$file" | cut -d' ' -f1)" = "$said" ] || { echo "$file is damaged: its checksum is not that of $file.manifest" >&2; exit 1; }
list=$(mktemp)
found=$(mktemp)
trap 'rm -f "$list" "$found"' EXIT
if [ -n "$revoked" ]; then
  # Before anything is restored: what cannot be read must not be found out with the old keys working.
  if [ -f "$revoked" ]; then cp "$revoked" "$list"
  elif [ -n "${FROM_DATABASE_URL:-}" ]; then DATABASE_URL=$FROM_DATABASE_URL "$here/revocations.sh" "$revoked" > "$list"
  else echo "--revoked-since: $revoked is no file; for a time set FROM_DATABASE_URL" >&2; exit 2; fi
  if grep -nvE '^((delete|disable)-key [^ ]+|expire-key [^ ]+ [0-9]+|delete-api [^ ]+|disable-workspace [^ ]+)$' "$list" >&2; then
    echo "--revoked-since: the lines above are not of revocations.sh" >&2; exit 1
  fi
fi
tables=$(query -c "select count(*) from pg_class where relkind in ('r', 'p') and relnamespace = current_schema()::regnamespace")
[ "$tables" = 0 ] || { echo "the database has $tables tables; restore into a new, empty one" >&2; exit 1; }

pg_restore --exit-on-error --single-transaction --no-owner --no-privileges --dbname="$url" "$file"
query < "$here/counts.sql" > "$found"
if ! diff <(grep -E '^(migration|rows|sum) ' "$file.manifest") "$found" >&2; then
  echo "the numbers of rows differ (< in the manifest, > restored); do not use this database" >&2
  exit 1
fi
if [ -n "$revoked" ]; then
  {
    echo 'begin; create temporary table revoked (kind text, id text, at bigint) on commit drop;'
    echo "copy revoked from stdin with (delimiter ' ', null '');"
    awk '{ print $1, $2, $3 }' "$list"
    echo '\.'
    cat "$here/revoke.sql"
    echo 'commit;'
  } | query
  echo "revoked again: $(wc -l < "$list") lines of the list"
fi
query -c analyze
echo "restored $file: $(sed -n 's/^rows keys //p' "$found") keys"
