#!/usr/bin/env bash
# Dumps the Postgres of DATABASE_URL into <file>, and writes <file>.manifest: version of the schema, numbers of rows of the same moment,
# checksum. Servers may run. Needs psql and pg_dump of the server's major version or newer.
set -euo pipefail
umask 077
[ $# = 1 ] || { echo "usage: DATABASE_URL=… backup.sh <file>" >&2; exit 2; }
file=$1
here=$(cd "$(dirname "$0")" && pwd)
[ ! -e "$file" ] || { echo "$file exists already; give another name" >&2; exit 1; }
part=$file.part
trap 'rm -f "$part"' EXIT

# One session holds a snapshot, which the dump and the counts share.
coproc psql --no-psqlrc --quiet --no-align --tuples-only --set ON_ERROR_STOP=1 "${DATABASE_URL:?set DATABASE_URL}"
ask() { echo "$1" >&"${COPROC[1]}"; }
# Before the snapshot: what is revoked from then on is not in the dump.
taken=$(date -u +%Y-%m-%dT%H:%M:%SZ)
ask 'begin isolation level repeatable read read only; select pg_export_snapshot();'
read -r -u "${COPROC[0]}" snapshot || { echo 'the database does not answer' >&2; exit 1; }
pg_dump --format=custom --snapshot="$snapshot" --file="$part" "$DATABASE_URL"
ask "$(cat "$here/counts.sql")"
ask '\echo end'
{
  echo "taken_at $taken"
  while read -r -u "${COPROC[0]}" line && [ "$line" != end ]; do echo "$line"; done
  echo "sha256 $(sha256sum "$part" | cut -d' ' -f1)"
} > "$file.manifest"
ask '\q'
grep -q '^rows keys ' "$file.manifest" || { echo 'the numbers of rows could not be read' >&2; exit 1; }
sync "$part"
mv "$part" "$file"
echo "wrote $file and $file.manifest"
