#!/usr/bin/env bash
# Rewrites tests/golden, and the tensor graphs in deploy/examples, from what the tests tagged "golden" produce:
# `bazel run //tests:update_goldens`.
set -euo pipefail
cd "$BUILD_WORKSPACE_DIRECTORY"
bazel test --noshow_progress --build_tests_only --test_tag_filters=golden --nocache_test_results \
  --test_env=BEAMD_UPDATE_GOLDENS="$BUILD_WORKSPACE_DIRECTORY" //tests/...
git status --short tests/golden deploy/examples
