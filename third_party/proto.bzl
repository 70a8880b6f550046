"""Runs Debian's protoc. A file is imported and included by its path from the root:
`import "proto/beamd/v1/ast.proto"`, `#include "proto/beamd/v1/ast.pb.h"`.

The same package must hold the .proto files named in `srcs`; `deps` are targets of these two macros.
"""

def _label(target, suffix):
    if ":" in target:
        return target + suffix
    return target + ":" + target.split("/")[-1] + suffix

def _out(src, extension):
    if not src.endswith(".proto"):
        fail("not a .proto file: " + src)
    return src[:-len(".proto")] + extension

def _generate(name, srcs, deps, flags, extension, cc_deps):
    native.filegroup(
        name = name + "_srcs",
        srcs = srcs + [_label(dep, "_srcs") for dep in deps],
        visibility = ["//visibility:public"],
    )
    sources = [_out(src, extension + ".cc") for src in srcs]
    headers = [_out(src, extension + ".h") for src in srcs]
    native.genrule(
        name = name + "_gen",
        srcs = srcs + [":" + name + "_srcs"],
        outs = sources + headers,
        cmd = "protoc -I. " + flags + " " + " ".join(["$(execpath %s)" % src for src in srcs]),
    )
    native.filegroup(
        name = name + "_headers",
        srcs = headers,
        visibility = ["//visibility:public"],
    )
    native.cc_library(
        name = name,
        srcs = sources,
        hdrs = headers,
        copts = ["-w"],  # generated
        visibility = ["//visibility:public"],
        deps = deps + cc_deps,
    )

def beamd_proto_library(name, srcs, deps = []):
    """The messages of `srcs` as a C++ library."""
    _generate(name, srcs, deps, "--cpp_out=$(BINDIR)", ".pb", ["@system//:protobuf"])

def beamd_grpc_library(name, srcs, deps):
    """The services of `srcs` as a C++ library; `deps` holds the target of their messages."""
    _generate(
        name,
        srcs,
        deps,
        "--plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin --grpc_out=$(BINDIR)",
        ".grpc.pb",
        ["@system//:grpc"],
    )
