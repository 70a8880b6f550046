#!/usr/bin/env bash
# Fuzzes each target from the checked-in corpus.
#
#   tests/fuzz/run.sh [SECONDS [TARGET...]]    60 s a target; new finds go to tests/fuzz/found/TARGET
#
# A crash, a sanitizer's report or a hang leaves its input beside, and ends this with 1.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-60}
shift || true
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  targets=(TuneRequest LookupRequest ShowRequest ListRecordsRequest GetRecordRequest stored access)
fi
bazel build --config=fuzz "${targets[@]/#///tests/fuzz:fuzz_}"
failed=0
for target in "${targets[@]}"; do
  found=tests/fuzz/found/$target
  mkdir -p "$found"
  echo "== $target"
  # gRPC's and protobuf's allocations are the system's, so leaks of theirs aren't ours to find.
  ASAN_OPTIONS=detect_leaks=0 "bazel-fuzz-bin/tests/fuzz/fuzz_$target" -max_total_time="$seconds" -timeout=10 \
    -rss_limit_mb=2048 -max_len=8192 -print_final_stats=1 -artifact_prefix="$found/" "$found" "tests/fuzz/corpus/$target" \
    2>"$found.log" || { failed=1; tail -40 "$found.log"; }
  grep -E 'stat::number_of_executed_units|DONE|SUMMARY' "$found.log" || true
done
exit $failed
