#!/bin/sh
# Installs the agent as a service of systemd, or takes it away again. Run it as often as you like: what is as it should
# be stays, a configuration is never overwritten.

set -eu
umask 022 # what is not named below is for everybody to read, whatever the umask of who runs this

usage() {
    cat <<'TEXT'
usage: install.sh [install] [OPTION...]    install or upgrade, then start
       install.sh uninstall [--purge]      stop and remove; the configuration and the ledger stay

  --listen ADDR     address of the page, as :10777, for a configuration that is made now (default: loopback)
  --from WHAT       what pip installs: a folder, a wheel, a requirement (default: the checkout of this script)
  --python PROGRAM  the interpreter, 3.10 or later (default: python3)
  --drop-in NAME    also install drop-ins/NAME.conf; may be given again
  --root DIR        write below DIR, as for an image; nothing is started, no user is made
  --no-start        do not enable or start the service
  --purge           with uninstall: also the configuration, the ledger and the user
  --dry-run         say what would be done
TEXT
}

die() { printf 'install.sh: %s\n' "$1" >&2; exit "${2:-1}"; }
say() { printf '%s\n' "$1"; }

# Runs a command, or says it.
act() {
    if [ "$dry" = 1 ]; then say "would run: $*"; else "$@"; fi
}

write() {
    act install -D -m "${3-644}" "$here/$1" "$root$2"
    [ "$dry" = 1 ] || say "written: $2"
}

# A file from here to there, unless it is the same there already.
place() {
    if cmp -s "$here/$1" "$root$2"; then
        say "as it is: $2"
    else
        write "$1" "$2"
    fi
}

# A file of the administrator's: made once, with a mode.
place_once() {
    if [ -e "$root$2" ]; then
        say "kept: $2"
        return 1
    fi
    write "$@"
}

has_systemd() { [ -z "$root" ] && [ -d /run/systemd/system ]; }

check_python() {
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
        die "$python is missing or older than 3.10: name a newer one with --python"
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        die "$python cannot make an environment: apt-get install python3-venv"
}

install_package() {
    # After an upgrade of the system's Python the environment's runs, and finds nothing of what was installed.
    if ! "$root$prefix/bin/python" -m pip --version >/dev/null 2>&1; then
        [ ! -e "$root$prefix" ] || [ -z "$(ls -A "$root$prefix")" ] || [ -e "$root$prefix/pyvenv.cfg" ] ||
            die "$prefix is there and is not an environment of Python: move it away"
        act "$python" -m venv --clear "$root$prefix"
    fi
    act "$root$prefix/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade "$from"
    case "$from" in
        *.whl | *.whl\[*\]) # pip keeps a package of the same version, also where the wheel is another one
            act "$root$prefix/bin/python" -m pip install --quiet --disable-pip-version-check \
                --force-reinstall --no-deps "$from"
            ;;
    esac
    if [ -n "$root" ] && [ "$dry" = 0 ]; then # scripts name the interpreter by the path that it had here
        find "$root$prefix/bin" -type f -exec sed -i "1s|^#!$root/|#!/|" {} +
    fi
    act ln -sfn "$prefix/bin/clusterwatt" "$root$command"
}

install_files() {
    place clusterwatt.service "$unit"
    place clusterwatt.sysusers /usr/lib/sysusers.d/clusterwatt.conf
    place clusterwatt.tmpfiles /usr/lib/tmpfiles.d/clusterwatt.conf
    for name in $drop_ins; do
        place_once "drop-ins/$name.conf" "$unit.d/$name.conf" || true
    done
    place_once clusterwatt.env /etc/clusterwatt/clusterwatt.env 600 || true
    if place_once clusterwatt.yaml /etc/clusterwatt/clusterwatt.yaml; then
        if [ -n "$listen" ] && [ "$dry" = 0 ]; then
            sed -i "s|^#http:|http:|; s|^#  listen: .*|  listen: \"$listen\"|" "$root/etc/clusterwatt/clusterwatt.yaml"
        fi
    elif [ -n "$listen" ]; then
        say "--listen is not used: set http.listen in /etc/clusterwatt/clusterwatt.yaml"
    fi
}

start() {
    has_systemd || { say "not started: no systemd runs here"; return; }
    act systemd-sysusers /usr/lib/sysusers.d/clusterwatt.conf
    act systemd-tmpfiles --create /usr/lib/tmpfiles.d/clusterwatt.conf
    act systemctl daemon-reload
    [ "$starts" = 1 ] || return 0
    act systemctl --quiet enable clusterwatt.service
    act systemctl restart clusterwatt.service
    say "started: systemctl status clusterwatt"
}

do_install() {
    for name in $drop_ins; do
        [ -f "$here/drop-ins/$name.conf" ] ||
            die "no drop-in $name; there are: $(cd "$here/drop-ins" && echo *.conf | sed 's/\.conf//g')" 2
    done
    check_python
    act mkdir -p "$root${prefix%/*}" "$root${command%/*}"
    install_package
    install_files
    start
}

# Files of running jobs stay: nobody would write them again, for an agent that is installed anew.
remove_run() {
    [ -d "$root/run/clusterwatt" ] || return 0
    act find "$root/run/clusterwatt" -mindepth 1 -maxdepth 1 ! -name jobs -exec rm -rf {} +
    act find "$root/run/clusterwatt" -depth -type d -empty -delete
    [ ! -d "$root/run/clusterwatt" ] || [ "$dry" = 1 ] || say "kept: /run/clusterwatt/jobs, files of running jobs"
}

do_uninstall() {
    if has_systemd && [ -e "$unit" ]; then
        act systemctl --quiet disable --now clusterwatt.service
    fi
    # Only what is ours: an environment with our command in it.
    if [ -e "$root$prefix/pyvenv.cfg" ] && [ -e "$root$prefix/bin/clusterwatt" ]; then
        act rm -rf "$root$prefix"
    fi
    if [ "$(readlink "$root$command" || true)" = "$prefix/bin/clusterwatt" ]; then
        act rm -f "$root$command"
    fi
    act rm -f "$root$unit" "$root/usr/lib/sysusers.d/clusterwatt.conf" "$root/usr/lib/tmpfiles.d/clusterwatt.conf"
    for drop_in in "$here"/drop-ins/*.conf; do
        if [ "$purge" = 1 ] || cmp -s "$drop_in" "$root$unit.d/${drop_in##*/}"; then
            act rm -f "$root$unit.d/${drop_in##*/}"
        fi
    done
    if [ -d "$root$unit.d" ]; then
        act rmdir "$root$unit.d" 2>/dev/null || say "kept: $unit.d, with drop-ins of yours"
    fi
    if [ "$purge" = 1 ]; then
        act rm -rf "$root/run/clusterwatt" "$root/etc/clusterwatt" "$root/var/lib/clusterwatt"
        if [ -z "$root" ] && getent passwd clusterwatt >/dev/null; then
            act userdel clusterwatt || say "kept: the user clusterwatt, of whom a process is left"
        fi
    else
        remove_run
        say "kept: /etc/clusterwatt, /var/lib/clusterwatt and the user they belong to (--purge removes them)"
    fi
    if has_systemd; then
        act systemctl daemon-reload
    fi
}

here=$(cd "$(dirname "$0")" && pwd)
prefix=/opt/clusterwatt
command=/usr/local/bin/clusterwatt
unit=/etc/systemd/system/clusterwatt.service
root='' python=python3 listen='' drop_ins='' dry=0 starts=1 purge=0 what=install
from="$here/../..[all]"

case "${1-}" in
    install | uninstall) what=$1; shift ;;
esac
while [ $# -gt 0 ]; do
    case "$1" in
        --listen | --from | --python | --drop-in | --root)
            [ $# -ge 2 ] || die "$1 needs a value; see --help" 2 ;;
    esac
    case "$1" in
        --listen) listen=$2; shift ;;
        --from) from=$2; shift ;;
        --python) python=$2; shift ;;
        --drop-in) drop_ins="$drop_ins $2"; shift ;;
        --root) root=${2%/}; shift ;;
        --no-start) starts=0 ;;
        --purge) purge=1 ;;
        --dry-run) dry=1 ;;
        -h | --help) usage; exit 0 ;;
        *) die "unknown option $1; see --help" 2 ;;
    esac
    shift
done
[ "$purge" = 0 ] || [ "$what" = uninstall ] || die "--purge goes with uninstall" 2
case "$listen" in
    *[!A-Za-z0-9.:_\[\]-]*) die "--listen $listen: expected an address and a port, as :10777" 2 ;;
esac
case "$root" in
    '' | /*) ;;
    *) die "--root $root: expected a path that begins with /" 2 ;;
esac
if [ -z "$root" ] && [ "$dry" = 0 ] && [ "$(id -u)" != 0 ]; then
    die "run it as root, or with --dry-run"
fi
"do_$what"
