#!/usr/bin/env bash
# Fuzzes each target from the checked-in corpus, as many at once as there are cores.
#
#   tests/fuzz/run.sh [SECONDS [TARGET...]]    60 s a target; new finds go to tests/fuzz/found/TARGET
#
# Ends with a line a target: `fuzz`, its name, `passed` or `failed`, tab-separated. A crash, a sanitizer's report or a
# hang leaves its input beside what was found, and makes this exit with 1.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-60}
shift || true
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  mapfile -t targets < <(bazel query --noshow_progress 'filter("fuzz_", kind(cc_binary, //tests/fuzz:all))' 2>/dev/null |
    sed 's/.*:fuzz_//')
fi
bazel build --noshow_progress --config=fuzz "${targets[@]/#///tests/fuzz:fuzz_}"
results=$(mktemp)
trap 'rm -f "$results"' EXIT

fuzz() {
  local target=$1 found=tests/fuzz/found/$1 outcome=passed
  mkdir -p "$found"
  # gRPC's and protobuf's allocations are the system's, so leaks of theirs aren't ours to find.
  ASAN_OPTIONS=detect_leaks=0 "bazel-fuzz-bin/tests/fuzz/fuzz_$target" -max_total_time="$seconds" -timeout=10 \
    -rss_limit_mb=2048 -max_len=8192 -print_final_stats=1 -artifact_prefix="$found/" "$found" "tests/fuzz/corpus/$target" \
    2>"$found.log" || { outcome=failed; tail -40 "$found.log"; }
  printf '== %s: %s\n' "$target" "$(sed -n 's/^stat::number_of_executed_units: */inputs /p' "$found.log")"
  printf 'fuzz\t%s\t%s\n' "$target" "$outcome" >>"$results"
}

running=0
for target in "${targets[@]}"; do
  fuzz "$target" &
  running=$((running + 1))
  if [ "$running" -ge "$(nproc)" ]; then wait -n || true; running=$((running - 1)); fi
done
wait
sort "$results"
! grep -q 'failed$' "$results"
