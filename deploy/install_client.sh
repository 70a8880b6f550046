#!/usr/bin/env bash
# Installs the client library: headers, a static library, the protos, and beamd-client.pc for pkg-config.
#   deploy/install_client.sh PREFIX [ARCHIVE]
# ARCHIVE is what `bazel build //client/thin:archive` makes; without it, it is built first.
# Programs: g++ -std=c++20 $(pkg-config --cflags beamd-client) x.cc $(pkg-config --libs beamd-client)
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  echo "usage: install_client.sh PREFIX [ARCHIVE]" >&2
  exit 2
fi
prefix=$1
archive=${2:-}
if [ -z "$archive" ]; then
  cd "$(dirname "$0")/.."
  bazel build //client/thin:archive
  archive=bazel-bin/client/thin/beamd-client.tar
fi
mkdir -p "$prefix"
prefix=$(cd "$prefix" && pwd)
tar -xf "$archive" -C "$prefix" --no-same-owner
echo "installed below $prefix"
echo "pkg-config finds it with PKG_CONFIG_PATH=$prefix/lib/pkgconfig"
