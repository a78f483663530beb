#!/bin/sh
# Makes the secrets of compose.yaml and compose.fleet.yaml in deploy/secrets. What is there already stays as it is.
# As root, each file is readable by the user of its container alone. Otherwise the folder keeps other users of this machine out, and
# the server logs `secret_file_exposed`, because users in its container could read them: there is only one.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
cd secrets

make() { # name, user in the container, text
  [ ! -e "$1" ] || return 0
  printf '%s\n' "$3" >"$1.new"
  if [ "$(id -u)" = 0 ]; then
    chown "$2" "$1.new"
    chmod 400 "$1.new"
  else
    chmod 444 "$1.new"
  fi
  mv "$1.new" "$1"
}

# 65532 is `nonroot` of Tollgate's image, 999 is `postgres` of the image of Postgres and `valkey` of that of Valkey.
make POSTGRES_PASSWORD 999 "$(openssl rand -hex 24)"
make DATABASE_URL 65532 "postgres://tollgate:$(cat POSTGRES_PASSWORD)@postgres:5432/tollgate"
make TOLLGATE_ROOT_KEY 65532 "tollgate_$(openssl rand -hex 24)"
make TOLLGATE_VAULT_KEY 65532 "$(openssl rand -base64 32)"
make VALKEY_CONF 999 "requirepass $(openssl rand -hex 24)"
make TOLLGATE_FLEET 65532 "redis://:$(cut -d " " -f 2 VALKEY_CONF)@valkey:6379"
echo "The secrets are in $PWD"
