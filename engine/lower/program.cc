#include "engine/lower/program.h"

#include "absl/strings/str_cat.h"
#include "engine/uop/text.h"

namespace beamd {

std::string ToText(const LinearProgram& program) {
  std::string text;
  int depth = 0;
  for (const UOp u : program.ops) {
    if (u.is(Op::kEndLoop)) --depth;
    absl::StrAppend(&text, std::string(2 * static_cast<size_t>(depth), ' '), "%", u.id(), " = ",
                    NodeText(u));
    if (u.src_count() > 0) {
      text += " (";
      for (int i = 0; i < u.src_count(); ++i) {
        const UOp s = u.src(i);
        absl::StrAppend(&text, i == 0 ? "" : ", ");
        if (s.is_const()) {
          absl::StrAppend(&text, NodeText(s));
        } else {
          absl::StrAppend(&text, "%", s.id());
        }
      }
      text += ")";
    }
    text += "\n";
    if (u.is(Op::kRange)) ++depth;
  }
  return text;
}

}  // namespace beamd
