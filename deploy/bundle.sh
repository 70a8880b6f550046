#!/usr/bin/env bash
# Builds one archive that runs beamd, beamctl, the conformance and the bench programs on another x86-64 Linux with glibc
# 2.36 or newer, with no installation: programs, the libraries that they use, examples and, with BEAMD_CORPUS, the corpus.
#
#   deploy/bundle.sh [OUTPUT.tar.xz]
#
# libLLVM is made anew, of the parts and targets (X86, NVPTX, AMDGPU) that the programs reach: a tenth of its size.
set -euo pipefail
cd "$(dirname "$0")/.."

output=$(realpath -m "${1:-beamd-bundle.tar.xz}")
limit_bytes=$((45 * 1000 * 1000))
llvm=/usr/lib/llvm-22
targets=(//server:beamd //client/beamctl //tests/conformance:device_conformance
  //tests/conformance:corpus_conformance //tests/bench:search_bench //tests/gpu:device_check)

deploy/install_deps.sh
bazel build "${targets[@]}"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
root=$scratch/beamd-bundle
mkdir -p "$root"/{bin,lib,examples,tests/gpu}
for program in server/beamd client/beamctl/beamctl tests/conformance/{device,corpus}_conformance \
  tests/bench/search_bench tests/gpu/device_check; do
  cp -L "bazel-bin/$program" "$root/bin/"
done
chmod u+w "$root"/bin/*

# --- libraries: all but glibc's own, which belong to the kernel's and loader's side ---
glibc='^(linux-vdso|ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libutil|libanl)[.-]'
symbols=$scratch/symbols
for program in "$root"/bin/*; do nm -D "$program"; done | sed -n 's/.* \([^ ]*\)@\{1,2\}LLVM_22\.1$/\1/p' | sort -u >"$symbols"

# libLLVM by the same name and symbol version, of what those symbols reach. Initialisers of other targets, which lld
# calls, do nothing.
others=$(grep -E '^LLVMInitialize' "$symbols" | grep -vE '^LLVMInitialize(X86|NVPTX|AMDGPU)' || true)
for initialiser in $others; do echo "void $initialiser(void) {}"; done >"$scratch/others.c"
gcc -O1 -fPIC -c "$scratch/others.c" -o "$scratch/others.o"
{ echo 'LLVM_22.1 { global:'; sed 's/$/;/' "$symbols"; echo 'local: *; };'; } >"$scratch/exports"
sed 's/^/-Wl,-u,/' "$symbols" >"$scratch/wanted"
read -ra archives <<<"$("$llvm/bin/llvm-config" --link-static --libs x86 nvptx amdgpu orcjit passes lto dtlto |
  sed 's/-lPolly[A-Za-z]*//g')"
read -ra system <<<"$("$llvm/bin/llvm-config" --link-static --system-libs)"
g++ -shared -fuse-ld=lld -B"$llvm/bin" -L"$llvm/lib" -o "$root/lib/libLLVM.so.22.1" -Wl,-soname,libLLVM.so.22.1 \
  -Wl,--version-script="$scratch/exports" -Wl,--gc-sections -Wl,--as-needed -Wl,-s @"$scratch/wanted" \
  "$scratch/others.o" -Wl,--start-group "${archives[@]}" -Wl,--end-group "${system[@]}"

# Copies what a program or library names, and then what that names. Debian's libLLVM is not asked.
copy_needed() {
  local name path
  for name in $(objdump -p "$1" | sed -n 's/^ *NEEDED *//p'); do
    if [[ $name =~ $glibc ]] || [ -e "$root/lib/$name" ]; then continue; fi
    path=$(ldconfig -p | sed -n "s/^\t$name (libc6,x86-64.*) => //p" | head -n 1)
    [ -n "$path" ] || { echo "bundle: no library $name" >&2; exit 1; }
    cp -L "$path" "$root/lib/$name"
    copy_needed "$root/lib/$name"
  done
}
for file in "$root"/bin/* "$root/lib/libLLVM.so.22.1"; do copy_needed "$file"; done
chmod u+w "$root"/lib/*
strip --strip-unneeded "$root"/bin/* "$root"/lib/*
for file in "$root"/bin/*; do patchelf --set-rpath '$ORIGIN/../lib' "$file"; done
for file in "$root"/lib/*; do patchelf --set-rpath '$ORIGIN' "$file"; done

# --- what goes along ---
cp deploy/examples/*.json "$root/examples/"
cp tests/gpu/run_on_device.sh "$root/tests/gpu/"
if [ -n "${BEAMD_CORPUS:-}" ]; then
  mkdir "$root/corpus"
  cp "$BEAMD_CORPUS"/*.json* "$BEAMD_CORPUS"/README.md "$root/corpus/"
  chmod -R u+w "$root/corpus"
fi
cat >"$root/README" <<'END'
beamd without an installation: x86-64 Linux with glibc 2.36 or newer; an NVIDIA or AMD driver where there is a GPU.

  tests/gpu/run_on_device.sh      checks every device path and prints one line of JSON
  bin/beamd serve --store DIR     the daemon
  bin/beamctl devices             what it owns
  bin/beamctl tune examples/matmul_512.json --device cuda
END

tar -C "$scratch" --owner=0 --group=0 --sort=name --mtime=@0 -cf - beamd-bundle | xz -T0 -4 >"$output"
size=$(stat -c %s "$output")
echo "bundle: $output, $size bytes, $(du -sb "$root" | cut -f1) unpacked"
if [ "$size" -gt "$limit_bytes" ]; then
  echo "bundle: over $limit_bytes bytes" >&2
  exit 1
fi
