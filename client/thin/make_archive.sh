#!/usr/bin/env bash
# Lays out what an installed client library is, and packs it.
#   make_archive.sh OUT VERSION_HEADER FILE...
# A FILE is a header or a .proto, named by its path from the tree's root, or a static library.
set -euo pipefail

out=$1
version=$(sed -n 's/.*kBeamdVersion\[\] = "\(.*\)".*/\1/p' "$2")
shift 2
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/lib/pkgconfig"

# One archive of them all.
script="create $tree/lib/libbeamd-client.a"
for file in "$@"; do
  case $file in
    *.a) script+=$'\n'"addlib $file" ;;
    *.h) install -D -m644 "$file" "$tree/include/beamd-client/${file#bazel-out/*/bin/}" ;;
    *.proto) install -D -m644 "$file" "$tree/share/beamd-client/$file" ;;
  esac
done
ar -M <<<"$script"$'\nsave\nend'
ranlib "$tree/lib/libbeamd-client.a"

cat >"$tree/lib/pkgconfig/beamd-client.pc" <<EOF
prefix=\${pcfiledir}/../..
includedir=\${prefix}/include/beamd-client
libdir=\${prefix}/lib

Name: beamd-client
Description: Tensors that a beamd computes; wants C++20
Version: $version
Requires: grpc++ protobuf absl_status absl_statusor absl_strings absl_cord absl_time libcrypto
Cflags: -I\${includedir}
Libs: -L\${libdir} -lbeamd-client -pthread
EOF
tar -C "$tree" --sort=name --owner=0 --group=0 --mtime=@0 -cf "$out" include lib share
