#include "engine/uop/op.h"

#include <iterator>

namespace beamd {
namespace {

constexpr absl::string_view kNames[] = {
    "UNSPECIFIED", "SINK",        "STORE",     "LOAD",    "DEFINE_GLOBAL", "DEFINE_LOCAL",
    "DEFINE_VAR",  "VIEW",        "VALID",     "CONST",   "ASSIGN",        "REDUCE_AXIS",
    "PRELOAD",     "BIND",        "CAST",      "BITCAST", "EXP2",          "LOG2",
    "SIN",         "SQRT",        "RECIP",     "NEG",     "ADD",           "MUL",
    "IDIV",        "MAX",         "MOD",       "CMPLT",   "CMPNE",         "XOR",
    "SHL",         "SHR",         "OR",        "AND",     "THREEFRY",      "SUB",
    "FDIV",        "WHERE",       "MULACC",    "BUFFER",  "RESHAPE",       "EXPAND",
    "PERMUTE",     "PAD",         "SHRINK",    "FLIP",    "CONTIGUOUS",    "COPY",
    "EMPTY",       "BUFFER_VIEW", "RANGE",     "SPECIAL", "INDEX",         "REDUCE",
    "BARRIER",     "VCONST",      "VECTORIZE", "GEP",     "ACC",           "LOOP",
    "ENDLOOP",     "IF",          "ENDIF",     "WMMA"};
static_assert(std::size(kNames) == kOpCount);

}  // namespace

absl::string_view Name(Op op) { return kNames[static_cast<int>(op)]; }

std::optional<Op> OpFromName(absl::string_view name) {
  for (int i = 1; i < kOpCount; ++i) {
    if (kNames[i] == name) return static_cast<Op>(i);
  }
  return std::nullopt;
}

}  // namespace beamd
