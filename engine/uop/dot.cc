#include "engine/uop/dot.h"

#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/uop/text.h"

namespace beamd {
namespace {

// In the order of Kind.
constexpr absl::string_view kLooks[] = {
    "shape=cylinder,fillcolor=\"#cfe2f3\"",  "shape=box,fillcolor=\"#fff2cc\"",
    "shape=box,fillcolor=\"#f9cb9c\"",       "shape=box,fillcolor=\"#e6e6e6\"",
    "shape=plaintext,fillcolor=\"#ffffff\"", "shape=box,fillcolor=\"#d9ead3\""};
static_assert(std::size(kLooks) == static_cast<int>(Dot::Kind::kResult) + 1);

std::string Quoted(absl::string_view text) {
  std::string printable(text);
  for (char& c : printable) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\n') c = '?';
  }
  return absl::StrCat(
      "\"", absl::StrReplaceAll(printable, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}), "\"");
}

Dot::Kind KindOf(UOp u) {
  if (u.is(Op::kBuffer | Op::kEmpty | Op::kDefineGlobal | Op::kDefineLocal)) {
    return Dot::Kind::kMemory;
  }
  if (u.is(Op::kReduceAxis | Op::kReduce)) return Dot::Kind::kReduce;
  if (u.is(kAlu | Op::kCast | Op::kBitcast)) return Dot::Kind::kCompute;
  if (u.is(Op::kStore | Op::kAssign | Op::kSink)) return Dot::Kind::kResult;
  if (u.is(Op::kConst | Op::kDefineVar | Op::kBind | Op::kValid)) return Dot::Kind::kPlain;
  return Dot::Kind::kMove;
}

}  // namespace

Dot::Dot(absl::string_view title)
    : text_(absl::StrCat("digraph ", Quoted(title),
                         " {\n  node [style=filled,fontname=\"monospace\",fontsize=10];\n  edge "
                         "[fontname=\"monospace\",fontsize=9];\n")) {}

void Dot::Node(absl::string_view name, absl::string_view label, Kind kind) {
  absl::StrAppend(&text_, "  ", Quoted(name), " [label=", Quoted(label), ",",
                  kLooks[static_cast<int>(kind)], "];\n");
}

void Dot::Edge(absl::string_view from, absl::string_view to, absl::string_view label) {
  absl::StrAppend(&text_, "  ", Quoted(from), " -> ", Quoted(to));
  if (!label.empty()) absl::StrAppend(&text_, " [label=", Quoted(label), "]");
  absl::StrAppend(&text_, ";\n");
}

void Dot::BeginCluster(absl::string_view label) {
  absl::StrAppend(&text_, "  subgraph cluster_", clusters_++, " {\n  label=", Quoted(label), ";\n");
}

void Dot::EndCluster() { absl::StrAppend(&text_, "  }\n"); }

std::string Dot::Finish() { return absl::StrCat(text_, "}\n"); }

void AddGraph(UOp root, absl::string_view prefix, const std::function<std::string(UOp)>& more,
              Dot& dot) {
  const std::vector<UOp> nodes = Toposort(root);
  // Numbered as in the text form.
  std::vector<size_t> number(root.graph().size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    const UOp u = nodes[i];
    number[u.id()] = i;
    if (u.is_const() && u != root) continue;
    const std::string name = absl::StrCat(prefix, i), added = more(u);
    // A view a line.
    const std::string label = absl::StrReplaceAll(NodeText(u), {{" view[", "\nview["}});
    dot.Node(name, absl::StrCat("%", i, " ", label, added.empty() ? "" : "\n", added), KindOf(u));
    for (int s = 0; s < u.src_count(); ++s) {
      const UOp src = u.src(s);
      std::string from = absl::StrCat(prefix, number[src.id()]);
      if (src.is_const()) {
        absl::StrAppend(&from, "_", i, "_", s);
        dot.Node(from, NodeText(src), KindOf(src));
      }
      dot.Edge(from, name, u.src_count() > 1 ? absl::StrCat(s) : "");
    }
  }
}

}  // namespace beamd
