#!/usr/bin/env bash
# Makes a certificate authority and certificates signed by it, for mutual TLS in a lab without one.
#
#   deploy/make_certs.sh DIR server HOST...   server.crt, server.key for these names or addresses
#   deploy/make_certs.sh DIR client NAME      NAME.crt, NAME.key; the access file says cert:NAME
#
# The first call makes ca.crt and ca.key in DIR; keep ca.key off the server. Keys are readable by
# their owner only, certificates by all: deploy/systemd/README.md says how the service gets to read
# its own key. Certificates last a year, the authority ten.
set -euo pipefail
umask 077

usage() { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 3 ] || usage
dir=$1 kind=$2
shift 2
mkdir -p "$dir"

# Names stand in OpenSSL's configuration and in file names.
for name in "$@"; do
  [[ $name =~ ^[A-Za-z0-9_.:-]+$ ]] || { echo "make_certs: no name or address: $name" >&2; exit 2; }
done

if [ ! -f "$dir/ca.key" ]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=beamd CA" \
    -addext basicConstraints=critical,CA:TRUE,pathlen:0 -addext keyUsage=critical,keyCertSign,cRLSign \
    -keyout "$dir/ca.key" -out "$dir/ca.crt" 2>/dev/null
  chmod 644 "$dir/ca.crt"
fi

case $kind in
  server)
    file=server usage=serverAuth names=""
    for host in "$@"; do
      if [[ $host =~ ^[0-9.]+$ || $host == *:* ]]; then names+="IP:$host,"; else names+="DNS:$host,"; fi
    done
    names=${names%,}
    ;;
  client)
    [ $# -eq 1 ] || usage
    file=$1 usage=clientAuth names="DNS:$1"
    ;;
  *) usage ;;
esac

extensions=$(mktemp)
request=$(mktemp)
trap 'rm -f "$extensions" "$request"' EXIT
cat >"$extensions" <<END
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=$usage
subjectAltName=$names
END
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$dir/$file.key.new" \
  -out "$request" 2>/dev/null
openssl x509 -req -in "$request" -CA "$dir/ca.crt" -CAkey "$dir/ca.key" -CAcreateserial -days 365 \
  -extfile "$extensions" -out "$dir/$file.crt.new" 2>/dev/null
chmod 644 "$dir/$file.crt.new"
mv "$dir/$file.key.new" "$dir/$file.key"
mv "$dir/$file.crt.new" "$dir/$file.crt"
echo "$dir/$file.crt $dir/$file.key"
