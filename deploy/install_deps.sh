#!/usr/bin/env bash
# Installs what building, testing and running beamd needs on Debian 12. Says nothing when all of it is there.
set -euo pipefail

packages=(
  # the build
  bazel-bootstrap bazel-platforms bazel-rules-java bazel-rules-proto bazel-skylib g++ git
  protobuf-compiler protobuf-compiler-grpc python3
  # libraries
  libabsl-dev libbenchmark-dev libgmock-dev libgrpc++-dev libgtest-dev liblld-22-dev libprotobuf-dev
  librocksdb-dev libseccomp-dev libspdlog-dev libssl-dev libzstd-dev llvm-22-dev prometheus-cpp-dev zlib1g-dev
  # checks
  clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev logrotate openssl pkg-config prometheus python3-jsonschema python3-yaml systemd
  # the bundle
  lld-22 patchelf xz-utils
)

missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install_deps: needs root or sudo to install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o=Dpkg::Use-Pty=0 -o=DPkg::Lock::Timeout=300)

# Of prometheus we want promtool; its server must not start here. Where it is in use already, this isn't reached.
unit=/etc/systemd/system/prometheus.service
if [[ " ${missing[*]} " == *" prometheus "* && -d /etc/systemd/system && ! -e $unit ]]; then
  "${as_root[@]}" ln -s /dev/null "$unit"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "install_deps: installing ${missing[*]}"
if ! { "${apt[@]}" update && "${apt[@]}" install --yes --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
