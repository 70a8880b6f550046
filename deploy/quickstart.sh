#!/usr/bin/env bash
# From a clone to a tuned kernel: installs what is missing, builds, starts beamd on loopback with a store of its own,
# tunes a 512 x 512 x 512 matrix product, asks for it again, and stops the daemon.
set -euo pipefail
cd "$(dirname "$0")/.."

kernel=deploy/examples/matmul_512.json

deploy/install_deps.sh
echo "building: minutes the first time"
build_flags=(--ui_event_filters=-info)
[ -t 2 ] || build_flags+=(--noshow_progress)
bazel build "${build_flags[@]}" //server:beamd //client/beamctl
beamd=bazel-bin/server/beamd
beamctl=bazel-bin/client/beamctl/beamctl

scratch=$(mktemp -d)
daemon=
finish() {
  if [ -n "$daemon" ]; then kill -TERM "$daemon" 2>/dev/null && wait "$daemon" || true; fi
  rm -rf "$scratch"
}
trap finish EXIT

"$beamd" serve --listen 127.0.0.1:0 --store "$scratch/store" >"$scratch/out" 2>"$scratch/log" &
daemon=$!
address=
for _ in $(seq 300); do
  address=$(sed -n 's/^ready //p' "$scratch/out")
  [ -z "$address" ] && kill -0 "$daemon" 2>/dev/null || break
  sleep 0.1
done
if [ -z "$address" ]; then
  echo "quickstart: beamd didn't become ready:" >&2
  cat "$scratch/log" >&2
  exit 1
fi

run() {
  printf '\n$ %s\n' "$*"
  "$@" 2>&1
}
run "$beamctl" --server "$address" tune "$kernel" --width 2 --budget 20s
printf '\nAgain: the store answers, nothing is compiled.\n'
run "$beamctl" --server "$address" tune "$kernel" --width 2 --budget 20s

cat <<END

The daemon of this demonstration stops now, and its store goes with it. To go on, in one terminal and another:

  $beamd serve --store ~/.local/share/beamd
  $beamctl tune $kernel

README.md says how the graph is written: put your own in its place.
END
