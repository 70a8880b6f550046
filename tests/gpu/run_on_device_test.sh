#!/usr/bin/env bash
# The script that a GPU machine runs, on the fake drivers and without any.
set -euo pipefail

bin=$TEST_TMPDIR/bin
mkdir -p "$bin"
for program in server/beamd client/beamctl/beamctl tests/conformance/device_conformance tests/gpu/device_check; do
  ln -sf "$PWD/$program" "$bin/"
done
run() {
  BEAMD_NAMES='' tests/gpu/run_on_device.sh --bin "$bin" --graph tests/gpu/add_256.json
}

status=0
without=$(run) || status=$?
echo "$without"
if grep -q '"gpu":true' <<<"$without"; then
  echo "this machine has a GPU"
  [ "$status" -eq 0 ]
else
  [ "$status" -eq 77 ]
  grep -q '"name":"cuda","why":".*libcuda.so.1' <<<"$without"
fi

status=0
with=$(LD_LIBRARY_PATH=$PWD/devices/fake run) || status=$?
echo "$with"
[ "$status" -eq 0 ]
grep -q '"device":"cuda:0".*"runner_replaced":true.*"runner_replaced":true.*"ok":true,"seconds":[0-9.]*}$' <<<"$with"
