#!/bin/sh
# Stops the service when the package goes, not when another version comes: dpkg says remove then,
# rpm 0.
set -e
case "${1:-}" in
remove | 0)
	if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
		systemctl disable --now weir.service
	fi
	;;
esac
