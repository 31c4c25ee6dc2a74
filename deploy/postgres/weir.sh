#!/bin/sh
# Makes the role that Weir has: an ordinary one, which row-level security binds. The
# image runs this once, when it makes the data folder.
set -eu
psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres --set password="$WEIR_DATABASE_PASSWORD" <<'SQL'
CREATE ROLE weir LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS PASSWORD :'password';
CREATE DATABASE weir OWNER weir;
REVOKE ALL ON DATABASE weir FROM PUBLIC;
SQL
