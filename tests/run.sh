#!/usr/bin/env bash
# Installs what is missing, builds everything, runs every check that a change must pass, and ends with one line:
# `N passed, N failed, N skipped`. Fails if anything failed.
#
#   BEAMD_CORPUS  the corpus of recorded kernels; default ../shared/corpus if that is there
#   BEAMD_BASE    clang-tidy checks what changed since this commit; default HEAD~1
#   BEAMD_TIDY_S  seconds that clang-tidy may take; files that it doesn't get to are skipped; default 480
#   BEAMD_ASAN_S  seconds that building and running under AddressSanitizer may take; default 1200
#   BEAMD_FUZZ_S  seconds that each fuzz target runs; default 60; 0: they aren't built
set -uo pipefail
cd "$(dirname "$0")/.."

deploy/install_deps.sh || exit 1

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
corpus=${BEAMD_CORPUS:-}
if [ -z "$corpus" ] && [ -d ../shared/corpus ]; then corpus=$(cd ../shared/corpus && pwd); fi
test_flags=(--keep_going --noshow_progress --test_output=errors --test_summary=terse)
[ -n "$corpus" ] && test_flags+=("--test_env=BEAMD_CORPUS=$corpus")

# case SUITE NAME passed|failed|skipped
case_is() { printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$results/cases"; }

section() { printf '\n== %s\n' "$1"; }

section "build"
if bazel build --keep_going --noshow_progress //...; then case_is build all passed; else case_is build all failed; fi

section "tests"
bazel test "${test_flags[@]}" --build_event_json_file="$results/tests.json" //...

section "quickstart"
if timeout 600 deploy/quickstart.sh; then case_is quickstart all passed; else case_is quickstart all failed; fi

section "format"
if git ls-files -z '*.cc' '*.h' | xargs -0 -r clang-format-14 --dry-run --Werror; then
  case_is format all passed
else
  case_is format all failed
fi

section "tidy"
# Generated protos are found as system headers: they aren't ours to tidy. Clang 14 knows _Float16 only with AVX-512's.
tidy_flags=(-std=c++20 -I. -isystem "$(bazel info bazel-bin 2>/dev/null)" -isystem /usr/lib/llvm-22/include
            -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL -DSPDLOG_SHARED_LIB -mavx512fp16)
tidy_until=$(($(date +%s) + ${BEAMD_TIDY_S:-480}))
tidy() {
  local left=$((tidy_until - $(date +%s))) status=124 log=$results/tidy.$BASHPID
  if [ "$left" -gt 0 ]; then
    timeout "$left" clang-tidy-14 --quiet "$1" -- "${tidy_flags[@]}" 2>"$log"
    status=$?
  fi
  case $status in
    0) case_is tidy "$1" passed ;;
    124) case_is tidy "$1 (out of time)" skipped ;;
    *) case_is tidy "$1" failed; grep -v 'warnings\? generated' "$log" ;;
  esac
}
base=$(git rev-parse --quiet --verify "${BEAMD_BASE:-HEAD~1}^{commit}" || git hash-object -t tree /dev/null)
# A changed header is read through the source file of its name.
mapfile -t changed < <(git diff --name-only --diff-filter=d "$base" -- '*.cc' '*.h' | sed 's/\.h$/.cc/' | sort -u)
running=0
for file in "${changed[@]}"; do
  [ -f "$file" ] || continue
  tidy "$file" &
  running=$((running + 1))
  if [ "$running" -ge 2 ]; then wait -n; running=$((running - 1)); fi
done
wait

section "asan"
# One that links a large library is not small, whatever it says: nobody waits for LLVM's and gRPC's headers twice.
mapfile -t small < <(bazel query --noshow_progress 'attr(size, small, tests(//...))
  except rdeps(//..., set(@system//:llvm @system//:grpc @system//:rocksdb))' 2>/dev/null)
timeout --signal=INT "${BEAMD_ASAN_S:-1200}" \
  bazel test "${test_flags[@]}" --config=asan --build_tests_only --test_tag_filters=-nosanitize \
  --build_event_json_file="$results/asan.json" "${small[@]}"

section "fuzz"
if [ "${BEAMD_FUZZ_S:-60}" -gt 0 ]; then
  tests/fuzz/run.sh "${BEAMD_FUZZ_S:-60}" | tee "$results/fuzz.log" | grep -v '^fuzz'
  grep '^fuzz' "$results/fuzz.log" >>"$results/cases" || case_is fuzz build failed
else
  case_is fuzz "all (told not to)" skipped
fi

section "summary"
python3 tests/summary.py "$results"
