#!/usr/bin/env bash
# Checks every device path on a real GPU in under five minutes: what a device must do, hot kernels' answers and times,
# a planted illegal access and a planted hang with recovery, and a search through the daemon. Prints one line of JSON.
#
#   run_on_device.sh [--bin DIR] [--corpus DIR] [--graph FILE] [--device cuda:0]
#
# The defaults are the bundle's (deploy/bundle.sh). Exit status: 0 all well, 1 something isn't, 2 usage, 77 there is no
# GPU, and "devices" says why.
set -uo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
bin=$root/bin corpus=$root/corpus graph=$root/examples/matmul_512.json device=
while [ $# -gt 0 ]; do
  case $1 in
    --bin) bin=$2 ;;
    --corpus) corpus=$2 ;;
    --graph) graph=$2 ;;
    --device) device=$2 ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift 2 || exit 2
done
names=${BEAMD_NAMES-matmul.f32.1024,matmul.f32.1000x1000x1000,matmul.f16.1024,matmul.bf16.1024,matmul.f16.4096,\
matmul.f32.1x4096x4096,bmm.f16.8x256x256x256,sum.f32.4096x4096,colsum.f32.4096x4096,softmax.f32.4096x4096#2,\
transpose.f32.4096x4096,gelu.f32.4096x4096,add.f32.4096x4096,layernorm.f32.1024x1024#2,\
resnet50.conv3x3.64-64.56.s1.f32.b1,resnet50.conv3x3.256-256.14.s1.f16.b32,gpt2.qkv.T128.f16,gpt2.attn.T128.f32#1,\
int8.matmul#1,f64.matmul,embedding.f32#0}

scratch=$(mktemp -d)
daemon=
finish() {
  if [ -n "$daemon" ]; then kill -TERM "$daemon" 2>/dev/null && wait "$daemon"; fi
  rm -rf "$scratch"
} 2>/dev/null
trap finish EXIT

# "name": JSON, in the order of the calls.
summary=
put() { summary+="${summary:+,}\"$1\":$2"; }
quoted() { printf '"%s"' "$(tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g')"; }
since() { awk "BEGIN { printf \"%.1f\", $(date +%s.%N) - $1 }"; }
began=$(date +%s.%N)
ok=true
say() {
  put seconds "$(since "$began")"
  printf '{%s}\n' "$summary"
}
fail() {
  put failed "$(printf '%s' "$1" | quoted)"
  put ok false
  say
  exit 1
}

# --- the daemon, and what it finds ---
"$bin/beamd" serve --listen 127.0.0.1:0 --store "$scratch/store" >"$scratch/out" 2>"$scratch/log" &
daemon=$!
address=
for _ in $(seq 600); do
  address=$(sed -n 's/^ready //p' "$scratch/out")
  [ -z "$address" ] && kill -0 "$daemon" 2>/dev/null || break
  sleep 0.1
done
[ -n "$address" ] || fail "beamd didn't become ready: $(tail -n 3 "$scratch/log")"
put ready_s "$(since "$began")"
devices=$("$bin/beamctl" --server "$address" devices --json) || fail "beamctl devices failed"
put devices "$devices"
if [ -z "$device" ]; then
  device=$(printf '%s' "$devices" | grep -o '"id":"\(cuda\|hip\):[0-9]*"' | head -n 1 | cut -d'"' -f4)
fi
if [ -z "$device" ]; then
  put gpu false
  say
  exit 77
fi
put gpu true
put device "\"$device\""

# --- what every device must do ---
start=$(date +%s.%N)
timeout 90 "$bin/device_conformance" --gtest_filter="*${device%%:*}*" >"$scratch/conformance" 2>&1
status=$?
count() { sed -n "s/^\[ *$1 *\] \([0-9]*\) test.*/\1/p" "$scratch/conformance" | head -n 1; }
passed=$(count PASSED) skipped=$(count SKIPPED) failed=$(count FAILED)
put conformance "{\"passed\":${passed:-0},\"skipped\":${skipped:-0},\"failed\":${failed:-0},\"status\":$status,\
\"failures\":$(grep -A6 'Failure$' "$scratch/conformance" | head -c 2000 | tr '\n' ' ' | quoted),\"seconds\":$(since "$start")}"
[ "$status" -eq 0 ] && [ "${passed:-0}" -gt 0 ] || ok=false

# --- kernels, faults ---
start=$(date +%s.%N)
check=$(timeout 150 "$bin/device_check" --device "$device" --corpus "$corpus" --names "$names" --seconds 80 \
  2>"$scratch/check.err")
status=$?
put check "${check:-null}"
if [ "$status" -ne 0 ]; then
  ok=false
  put check_status "$status"
  put check_error "$(tail -c 1000 "$scratch/check.err" | tr '\n' ' ' | quoted)"
fi
put check_seconds "$(since "$start")"

# --- a search ---
start=$(date +%s.%N)
search=$(timeout 60 "$bin/beamctl" --server "$address" tune "$graph" --device "$device" --width 2 --budget 30s --json \
  2>"$scratch/search.err" | tail -n 1)
status=$?
put search "${search:-null}"
put search_seconds "$(since "$start")"
if [ "$status" -ne 0 ] || [ -z "$search" ]; then
  ok=false
  put search_error "$(tail -c 1000 "$scratch/search.err" | tr '\n' ' ' | quoted)"
fi
after=$("$bin/beamctl" --server "$address" devices --json) && put devices_after "$after"

put ok "$ok"
say
[ "$ok" = true ]
