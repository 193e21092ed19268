#!/bin/sh
# Builds the Dockerfile without Docker, and prints the directory with the image as a file tree (`root`) and its `config.json`.
#
# Needs Linux, root and buildah. BASE names the base image; without it a stand-in is made with mmdebstrap from the packages of
# this machine's Debian 12, with this machine's own authorities and pip settings, so that no image has to be pulled.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
work=${TIDEGATE_IMAGES:-$here/build/image}
need() {
  command -v "$1" >/dev/null || { echo "build.sh: $1 is missing; on Debian: apt install $1" >&2; exit 1; }
}
need buildah
mkdir -p "$work"
# Plain directories and chroot: neither overlays nor user namespaces nor a container engine are needed.
export BUILDAH_ISOLATION=chroot
storage="--root $work/storage --runroot $work/run --storage-driver vfs"
b() {
  command=$1
  shift
  # shellcheck disable=SC2086 # several words
  nice -n 5 buildah $storage "$command" "$@"
}

base=${BASE:-}
if [ -z "$base" ]; then
  base=localhost/tidegate-stand-in:bookworm
  if ! b inspect --type image "$base" >/dev/null 2>&1; then
    need mmdebstrap
    made=$work/stand-in
    mkdir -p "$made/etc" "$made/usr/local/share"
    cp -r /usr/local/share/ca-certificates "$made/usr/local/share/"
    [ ! -e /etc/pip.conf ] || cp /etc/pip.conf "$made/etc/"
    # A list that is a file counts in place of a mirror; man pages and the like are left out, as in the slim image.
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null >"$work/sources.list" || true
    set -- /etc/apt/sources.list.d/*.sources
    [ -e "$1" ] || set --
    [ ! -s "$work/sources.list" ] || set -- "$work/sources.list" "$@"
    mmdebstrap --quiet --variant=minbase --dpkgopt=path-exclude=/usr/share/man/* --dpkgopt=path-exclude=/usr/share/doc/* \
      bookworm "$work/base.tar" "$@" >&2
    container=$(b from scratch)
    b add --quiet "$container" "$work/base.tar" / >&2
    b copy --quiet "$container" "$made" / >&2
    b config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin --cmd bash "$container" >&2
    b commit --quiet --format docker --rm "$container" "$base" >&2
    rm -rf "$work/base.tar" "$made" "$work/sources.list"
  fi
fi

# The format of Docker, because SHELL is not in the other one.
b build --format docker --build-arg "BASE=$base" --tag localhost/tidegate:check --file "$here/Dockerfile" "$here" >&2
[ ! -e "$work/container" ] || b rm "$(cat "$work/container")" >&2 || true
b from localhost/tidegate:check >"$work/container"
ln -sfn "$(b mount "$(cat "$work/container")")" "$work/root"
b inspect --type image localhost/tidegate:check >"$work/config.json"
echo "$work"
