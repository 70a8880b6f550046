#!/usr/bin/env python3
"""Names every include that climbs the order of folders or reaches for a library its folder may not see, every folder
of sources without README.md or BUILD.bazel, and every file that a README names and that isn't there."""

import os
import re
import sys

# Bottom first: an include goes to an earlier line or stays in its own.
LAYERS = (
    "proto",
    "engine/base",
    "engine/dtype",
    "engine/uop",
    "engine/rewrite",
    "engine/symbolic",
    "engine/shape",
    "engine/lazy",
    "engine/autograd",
    "engine/tensor",
    "engine/schedule",
    "engine/kernel",
    # A plain value that lower fills in, llvm completes and devices read: below all three, in the folder that
    # ARCHITECTURE.md names.
    "engine/llvm/kernel_image.h",
    "engine/lower",
    "engine/llvm",
    "engine/search",
    "devices",
    "server",
    "client/thin",
    "client",
)

# May include anything: they look at every layer.
FREE = ("tests",)

# What devices/ sees of the engine.
DEVICES_SEE = re.compile(r"engine/base/|engine/llvm/kernel_image\.h$")

# What the library of thin clients sees of the tree: it is installed alone.
THIN_SEES = re.compile(r"proto/|client/thin/")

# (what, the header's spelling, the files that may include it)
LIBRARIES = (
    ("BLAKE3", r"llvm-c/blake3\.h$", r"engine/base/hash\.cc$"),
    ("LLVM", r"(llvm|llvm-c|lld)/(?!.*blake3\.h$)", r"engine/llvm/|devices/(cpu|emu)/"),
    ("RocksDB", r"rocksdb/", r"server/store/"),
    ("gRPC", r"(grpc|grpcpp)/|.*\.grpc\.pb\.h$", r"(server|client)/"),
    ("protobuf", r"google/protobuf/|.*(?<!grpc)\.pb\.h$", r"proto/|engine/uop/wire\.|(server|client)/"),
    ("CUDA", r"(cuda|cuda_.*|nvrtc|cupti.*)\.h$", r"devices/cuda/"),
    ("HIP", r"hip/|(hsa|amd_comgr)/", r"devices/hip/"),
    ("Prometheus", r"prometheus/|civetweb\.h$", r"server/metrics/"),
    ("OpenSSL", r"openssl/", r"server/(services|sessions)/|client/(thin/checksum|beamctl/port_probe)\.cc$"),
    ("seccomp", r"seccomp\.h$", r"server/workers/"),
    ("logging", r"spdlog/", r"(devices|server)/"),
    ("a mutex that TSan can't see", r"absl/synchronization/mutex\.h$", r"$"),
)

SOURCE = re.compile(r"\.(cc|h|py|sh|proto|def)$")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
PROTO_IMPORT = re.compile(r'^\s*import\s+(?:public\s+)?(")([^"]+)"', re.MULTILINE)

# `print.h` or `server/store/store.{h,cc}` in a README.
NAMED_FILE = re.compile(r"`([\w./-]+)\.(?:(h|cc|proto|sh|json|txt|bzl)|\{([\w,]+)\})`")


def layer_of(path):
    """The index of the line that `path` stands in; None for the free ones; -1 if there is none."""
    if path.split("/")[0] in FREE:
        return None
    for index, layer in enumerate(LAYERS):
        if path == layer or path.startswith(layer + "/"):
            return index
    return -1


def include_faults(path, text):
    """Yields what is wrong with the includes of the file `path`."""
    own = layer_of(path)
    if own == -1:
        yield "{}: in no layer of ARCHITECTURE.md".format(path)
        return
    if own is None:
        return
    for quote, header in INCLUDE.findall(text) + PROTO_IMPORT.findall(text):
        for what, spelling, users in LIBRARIES:
            if re.match(spelling, header) and not re.match(users, path):
                yield "{}: includes {}: {} isn't for this folder".format(path, header, what)
        if not header.split("/")[0] in {layer.split("/")[0] for layer in LAYERS + FREE}:
            if quote == '"' and "/" not in header:
                yield "{}: includes {}: not spelled from the root".format(path, header)
            continue
        target = layer_of(header)
        if target is None:
            yield "{}: includes {}: tests are not for others".format(path, header)
        elif target == -1:
            yield "{}: includes {}: in no layer of ARCHITECTURE.md".format(path, header)
        elif target > own:
            yield "{}: includes {}: climbs from {} to {}".format(path, header, LAYERS[own], LAYERS[target])
        elif path.startswith("devices/") and header.startswith("engine/") and not DEVICES_SEE.match(header):
            yield "{}: includes {}: devices see engine/base and engine/llvm/kernel_image.h".format(path, header)
        elif path.startswith("client/thin/") and not THIN_SEES.match(header):
            yield "{}: includes {}: the thin client sees proto/ and itself".format(path, header)


# (file, include, whether it is allowed): what the rules above must say.
EXAMPLES = (
    ("engine/shape/view.cc", "engine/symbolic/symbolic.h", True),
    ("engine/symbolic/symbolic.cc", "engine/shape/view.h", False),
    ("engine/base/hash.cc", "llvm-c/blake3.h", True),
    ("engine/uop/hash.cc", "llvm-c/blake3.h", False),
    ("engine/base/hash.cc", "llvm/Support/BLAKE3.h", False),
    ("engine/llvm/emit.cc", "llvm/IR/Module.h", True),
    ("engine/lower/expand.cc", "llvm/IR/Module.h", False),
    ("devices/cpu/device.cc", "llvm/ExecutionEngine/JITLink/JITLink.h", True),
    ("devices/cuda/device.cc", "llvm/IR/Module.h", False),
    ("devices/cpu/device.h", "engine/llvm/kernel_image.h", True),
    ("engine/lower/program.h", "engine/llvm/kernel_image.h", True),
    ("engine/lower/program.h", "engine/llvm/compiler.h", False),
    ("engine/llvm/kernel_image.h", "engine/lower/program.h", False),
    ("engine/llvm/kernel_image.cc", "engine/llvm/kernel_image.h", True),
    ("devices/cpu/device.h", "engine/llvm/compiler.h", False),
    ("devices/device.h", "engine/uop/uop.h", False),
    ("engine/uop/wire.cc", "proto/beamd/v1/ast.pb.h", True),
    ("engine/uop/hash.cc", "proto/beamd/v1/ast.pb.h", False),
    ("server/store/store.cc", "rocksdb/db.h", True),
    ("server/tuning/job.cc", "rocksdb/db.h", False),
    ("server/main.cc", "grpcpp/grpcpp.h", True),
    ("engine/uop/wire.h", "proto/beamd/v1/tuning.grpc.pb.h", False),
    ("engine/search/beam.cc", "spdlog/spdlog.h", False),
    ("engine/search/beam.cc", "server/main.h", False),
    ("server/tuning/job.cc", "absl/synchronization/mutex.h", False),
    ("server/tuning/job.cc", "tests/testing/golden.h", False),
    ("engine/oddments/x.cc", "engine/base/hash.h", False),
    ("engine/uop/uop.cc", "uop.h", False),
    ("tests/engine/uop/uop_test.cc", "engine/search/beam.h", True),
    ("client/thin/session.cc", "proto/beamd/v1/executor.grpc.pb.h", True),
    ("client/thin/session.cc", "engine/base/status.h", False),
    ("client/thin/session.cc", "client/cc/client.h", False),
    ("client/cc/client.cc", "client/thin/channel.h", True),
    ("server/main.cc", "client/thin/session.h", False),
)


def example_faults():
    for path, header, allowed in EXAMPLES:
        faults = list(include_faults(path, '#include "{}"\n'.format(header)))
        if allowed == bool(faults):
            yield "example: {} including {}: expected {}, found {}".format(
                path, header, "no fault" if allowed else "a fault", faults)


def readme_faults(root, folder, text):
    """Yields the files that the README `text` of `folder` names, from there or from the root, and that aren't there."""
    for stem, extension, extensions in NAMED_FILE.findall(text):
        for one in [extension] if extension else extensions.split(","):
            name = "{}.{}".format(stem, one)
            if not any(os.path.exists(os.path.join(root, base, name)) for base in (folder, "")):
                yield "{}: names {}, which isn't there".format(os.path.join(folder, "README.md"), name)


def tree_faults(root):
    """Yields what is wrong in the source tree at `root`, and must find something to read."""
    files = 0
    for top in ("proto", "engine", "devices", "server", "client", "tests", "deploy"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            sources = [name for name in names if SOURCE.search(name)]
            relative = os.path.relpath(folder, root)
            if sources:
                for wanted in ("README.md", "BUILD.bazel"):
                    if wanted not in names:
                        yield "{}: has no {}".format(relative, wanted)
            if "README.md" in names:
                with open(os.path.join(folder, "README.md"), encoding="utf-8") as file:
                    yield from readme_faults(root, relative, file.read())
            for name in sorted(sources):
                if name.endswith((".cc", ".h", ".proto", ".def")):
                    files += 1
                    path = os.path.join(relative, name)
                    with open(os.path.join(folder, name), encoding="utf-8") as file:
                        yield from include_faults(path, file.read())
    if files == 0:
        yield "no source found at " + root


def main():
    # The test sees one file of the source tree through a link; the tree is around that file.
    root = os.path.dirname(os.path.realpath("WORKSPACE"))
    faults = list(example_faults()) + sorted(tree_faults(root))
    for fault in faults:
        print(fault)
    print("{} faults".format(len(faults)))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
