#!/bin/sh
# What Weir knows stays in /var/lib/weir, and so does its user, whose the files are. Only a purge
# removes an empty folder.
set -e
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
if [ "${1:-}" = purge ]; then
	rmdir "${DPKG_ROOT:-}/var/lib/weir" 2>/dev/null || true
fi
