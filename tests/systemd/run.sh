#!/usr/bin/env bash
# usage: run.sh PATH-OF-LLMGW   installs the unit as its first lines describe, in a container with a real systemd, and runs it
#
# systemd-nspawn boots the systemd of this machine: the container has this machine's /usr below a layer of its own, and nothing
# else of it. inside.sh then runs in the container. It needs Linux and root; missing packages are installed with apt-get.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "$1")
fail() { echo "systemd: $*" >&2; exit 1; }

if [ "${IN_NAMESPACE:-}" != yes ]; then
    missing=()
    for tool in systemd-nspawn:systemd-container dbus-daemon:dbus-daemon curl:curl; do
        command -v "${tool%%:*}" >/dev/null || missing+=("${tool##*:}")
    done
    [ -x /lib/systemd/systemd ] || missing+=(systemd)
    if [ ${#missing[@]} -gt 0 ]; then
        echo "systemd: installing ${missing[*]} with apt-get" >&2
        { apt-get install -y -qq --no-install-recommends "${missing[@]}" ||
            { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; }; } >&2 ||
            fail "needed: ${missing[*]}"
    fi
    [ "$(id -u)" = 0 ] || fail "systemd-nspawn needs root"
    exec env IN_NAMESPACE=yes unshare --mount --cgroup "$0" "$binary"
fi

work=$(mktemp -d)
container=
cleanup() {
    [ -z "$container" ] || kill -KILL "$container" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

# The container's systemd manages control groups below one of its own, of version 2 also on a machine with version 1.
if mountpoint -q /sys/fs/cgroup; then umount -R /sys/fs/cgroup; fi
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs none /run
group=/sys/fs/cgroup/llmgw-systemd-$$
mkdir "$group"
echo $$ >"$group/cgroup.procs"

root=$work/root
mkdir -p "$root"/{dev,etc,opt/llmgw,proc,root,run,sys,tmp,usr,var} "$work/usr"
ln -s usr/bin usr/sbin usr/lib usr/lib64 "$root/"
cp /etc/os-release "$root/etc/"
echo '127.0.0.1 localhost' >"$root/etc/hosts"
# The folder of an unpacked archive.
cp "$binary" "$here"/../../packaging/llmgw.{service,env} "$here/inside.sh" "$root/opt/llmgw/"
SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 systemd-nspawn --quiet --register=no --keep-unit --private-network --console=pipe \
    --machine=llmgw --directory="$root" --overlay="/usr:$work/usr:/usr" --boot \
    systemd.unit=basic.target systemd.mask=systemd-networkd-wait-online.service \
    systemd.mask=systemd-firstboot.service >"$work/console" 2>&1 </dev/null &
nspawn=$!

inside() { nsenter --all --target "$container" "$@"; }
has_booted() {
    kill -0 "$nspawn" 2>/dev/null || { cat "$work/console" >&2; fail "the container ended"; }
    # A helper of systemd-nspawn precedes the first process of the container.
    container=$(pgrep --parent "$nspawn" | tail -n 1)
    [ -n "$container" ] || return 1
    # A failed unit of the machine's own packages makes it "degraded".
    case $(inside systemctl is-system-running 2>/dev/null) in running | degraded) ;; *) return 1 ;; esac
}
deadline=$((SECONDS + 60))
until has_booted; do
    [ "$SECONDS" -lt "$deadline" ] || { cat "$work/console" >&2; fail "the container does not boot"; }
    sleep 0.2
done
booted=$SECONDS

if ! inside bash /opt/llmgw/inside.sh; then
    inside journalctl --boot --no-pager --unit llmgw | tail -n 60 >&2
    fail "the unit does not do what it should"
fi
# The signal that asks systemd to power off.
kill -s RTMIN+4 "$container"
wait "$nspawn" || fail "the container did not end in order"
container=
rmdir "$group/payload" "$group/supervisor" 2>/dev/null || true
echo "systemd: $(systemctl --version | head -n 1) booted in $booted s; the unit was installed, used, stopped and killed in $((SECONDS - booted)) s"
