#!/usr/bin/env bash
# Each file of deploy/ through the tool that knows it; what isn't installed is said, not failed.
set -u
failed=0
check() { # NAME COMMAND...
  local name=$1 out
  shift
  if out=$("$@" 2>&1); then echo "ok: $name"; else echo "FAILED: $name"; echo "$out"; failed=1; fi
}
have() { command -v "$1" >/dev/null && return; echo "skipped: $2: no $1 here"; return 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if have systemd-analyze "the unit"; then
  # It names a program and files that are on no build machine.
  sed -e 's#/usr/bin/beamd#/bin/true#' deploy/systemd/beamd.service >"$work/beamd.service"
  check "unit is one" systemd-analyze verify --man=no "$work/beamd.service"
  check "unit is hardened" systemd-analyze security --offline=yes --threshold=25 "$work/beamd.service"
fi

# It names folders that the service manager makes.
mkdir "$work/service"
sed -e "s#\"/[a-z/]*/beamd/#\"$work/service/#" deploy/systemd/beamd.textproto >"$work/beamd.textproto"
check "the service's configuration" server/beamd serve --config "$work/beamd.textproto" --check_config
for script in deploy/*.sh; do check "$script parses" bash -n "$script"; done

if have promtool "alert rules"; then
  check "alert rules" promtool check rules deploy/prometheus/alerts.yaml
  check "alerts fire" sh -c 'cd deploy/prometheus && promtool test rules alerts_test.yaml'
fi

check "manifests and dashboard" python3 tests/deploy/check_manifests.py deploy/kubernetes/beamd.yaml \
  deploy/prometheus/dashboard.json deploy/prometheus/alerts.yaml server/metrics/README.md server/beamd

if have logrotate "logrotate"; then
  # Owners of a build machine's files are not those of /etc.
  cp deploy/logrotate/beamd "$work/beamd.logrotate"
  chmod 644 "$work/beamd.logrotate"
  check "logrotate" logrotate --debug --state "$work/state" "$work/beamd.logrotate"
fi

if have openssl "certificates"; then
  check "a server's certificate" deploy/make_certs.sh "$work/tls" server localhost 127.0.0.1
  check "a client's certificate" deploy/make_certs.sh "$work/tls" client alice
  check "they are signed" openssl verify -CAfile "$work/tls/ca.crt" "$work/tls/server.crt" "$work/tls/alice.crt"
  check "certificates are all's" test "$(stat -c %a "$work/tls/server.crt")" = 644
  check "keys are their owner's" test "$(stat -c %a "$work/tls/server.key")" = 600
  if deploy/make_certs.sh "$work/tls" client '../x' 2>/dev/null; then echo "FAILED: a path as a name"; failed=1; fi
fi
exit $failed
