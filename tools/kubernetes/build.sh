#!/bin/sh
# Builds the programs of go.mod and prints the directory with them; `crds` in it has the resources of the Prometheus operator.
#
# They stay in a cache outside the checkout, under a key of what they are made from:
# the second run takes no time. The first one takes about ten minutes of CPU, 2 GB of
# memory for the linker, and 5 GB of disk for Go's caches.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=${TIDEGATE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegate/kubernetes}
command -v go >/dev/null || {
  echo "build.sh: Go is missing: install it (Debian: golang), at least the version in $here/go.mod" >&2
  exit 1
}
key=$({ cat "$here/go.mod" "$here/go.sum" "$here/build.sh"; go version; } | sha256sum | cut -c1-16)
bin=$root/$key
if [ -e "$bin/complete" ]; then
  echo "$bin"
  exit 0
fi

version=$(sed -n 's/^\tk8s.io\/kubernetes \(v[0-9.]*\) .*/\1/p' "$here/go.mod")
test -n "$version"
minor=${version#v1.}
build=k8s.io/component-base/version
mkdir -p "$bin"
cd "$here"
# Without the version a server says that it is v0.0.0, and clients refuse what it offers.
CGO_ENABLED=0 nice -n 15 go build -trimpath -buildvcs=false -o "$bin/" \
  -ldflags "-s -w -X $build.gitVersion=$version -X $build.gitMajor=1 -X $build.gitMinor=${minor%%.*}" \
  helm.sh/helm/v4/cmd/helm \
  go.etcd.io/etcd/server/v3 \
  k8s.io/kubernetes/cmd/kube-apiserver \
  k8s.io/kubernetes/cmd/kube-controller-manager \
  k8s.io/kubernetes/cmd/kube-scheduler \
  k8s.io/kubernetes/cmd/kubectl >&2
mv "$bin/server" "$bin/etcd"

# Only these files are needed, so the module is not one of go.mod; its checksum is Go's `h1`.
module=github.com/prometheus-operator/prometheus-operator@v0.85.0
sum=h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=
found=$(cd / && go mod download -json "$module")
echo "$found" | grep -qF "\"$sum\"" || { echo "build.sh: $module has another checksum" >&2; exit 1; }
crds=$(echo "$found" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')/example/prometheus-operator-crd
mkdir -p "$bin/crds"
for kind in servicemonitors podmonitors prometheusrules; do
  cp "$crds/monitoring.coreos.com_$kind.yaml" "$bin/crds/"
done
: >"$bin/complete"
echo "$bin"
