#!/usr/bin/env bash
# Runs the tests under UBSan and TSan; by hand, before an issue is resolved. tests/run.sh covers ASan.
# TSan leaves out what links gRPC: Debian's build of it is not instrumented, so its locks are invisible. Of RocksDB,
# which isn't either, only what it reports about itself is left out (tsan.supp).
set -uo pipefail
cd "$(dirname "$0")/.."

flags=(--keep_going --noshow_progress --build_tests_only --test_tag_filters=-nosanitize)
if [ -z "${BEAMD_CORPUS:-}" ] && [ -d ../shared/corpus ]; then BEAMD_CORPUS=$(cd ../shared/corpus && pwd); fi
[ -n "${BEAMD_CORPUS:-}" ] && flags+=("--test_env=BEAMD_CORPUS=$BEAMD_CORPUS")

failed=()
bazel test "${flags[@]}" --config=ubsan //... || failed+=(ubsan)

mapfile -t without_grpc < <(bazel query --noshow_progress 'tests(//...) except rdeps(//..., @system//:grpc)')
bazel test "${flags[@]}" --config=tsan \
  --test_env=TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tests/tsan.supp" \
  "${without_grpc[@]}" || failed+=(tsan)

if [ ${#failed[@]} -gt 0 ]; then
  echo "failed: ${failed[*]}"
  exit 1
fi
echo "ubsan and tsan: clean"
