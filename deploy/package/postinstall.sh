#!/bin/sh
# The user and the folder of the service; after an upgrade the running one is restarted.
# DPKG_ROOT is set where dpkg works on another tree than /.
set -e
root=${DPKG_ROOT:-}
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers ${root:+--root="$root"} weir.conf
elif ! grep -q '^weir:' "$root/etc/passwd"; then
	useradd ${root:+--root "$root"} --system --user-group --home-dir /var/lib/weir --no-create-home --shell /usr/sbin/nologin weir
fi
owner=$(sed -n 's/^weir:[^:]*:\([0-9]*\):\([0-9]*\):.*/\1:\2/p' "$root/etc/passwd")
mkdir -p "$root/var/lib/weir"
chown "$owner" "$root/var/lib/weir"
chmod 0700 "$root/var/lib/weir"
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart weir.service
fi
