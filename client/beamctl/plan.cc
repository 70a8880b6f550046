#include "client/beamctl/plan.h"

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/beamctl/format.h"
#include "engine/schedule/memory_plan.h"

namespace beamd {
namespace {

std::vector<std::string> OutputShapes(const ScheduleItem& item) {
  std::vector<std::string> shapes;
  for (const LazyBuffer& output : item.outputs) shapes.push_back(ShapeText(output.shape()));
  return shapes;
}

// "[[64,256]]"; a size that is an expression is a text.
std::string ShapesJson(const ScheduleItem& item) {
  const auto size = [](std::string* out, const SInt& v) {
    absl::StrAppend(out, v.is_number() ? ToString(v) : absl::StrCat("\"", ToString(v), "\""));
  };
  const auto shape = [&](std::string* out, const LazyBuffer& output) {
    absl::StrAppend(out, "[", absl::StrJoin(output.shape(), ",", size), "]");
  };
  return absl::StrCat("[", absl::StrJoin(item.outputs, ",", shape), "]");
}

std::string ItemName(const Model& model, size_t item) {
  const int kernel = model.kernel_of_item[item];
  if (kernel >= 0) return model.kernels[kernel].name;
  return model.schedule.items[item].kind == ScheduleItem::Kind::kCopy ? "copy" : "view";
}

// Of a copy: there and back; of a view none.
double ItemBytes(const Model& model, size_t index) {
  const int kernel = model.kernel_of_item[index];
  if (kernel >= 0) return model.kernels[kernel].cost.bytes;
  const ScheduleItem& item = model.schedule.items[index];
  if (item.kind != ScheduleItem::Kind::kCopy) return 0;
  return 2 * static_cast<double>(item.buffers[0]->size_bytes());
}

}  // namespace

void PrintPlan(const Model& model, bool json) {
  TextTable table({"#", "<kernel", "<output", "flops", "bytes", "<opts"});
  double operations = 0, bytes = 0;
  for (size_t i = 0; i < model.schedule.items.size(); ++i) {
    const ScheduleItem& item = model.schedule.items[i];
    const int index = model.kernel_of_item[i];
    const ModelKernel* kernel = index < 0 ? nullptr : &model.kernels[index];
    const std::string name = ItemName(model, i);
    const std::vector<std::string> shapes = OutputShapes(item);
    const double work = kernel == nullptr ? 0 : kernel->cost.operations;
    const double moved = ItemBytes(model, i);
    operations += work;
    bytes += moved;
    if (!json) {
      table.Row({absl::StrCat(i), name, absl::StrJoin(shapes, " "),
                 kernel == nullptr ? "-" : CountText(work), CountText(moved),
                 kernel == nullptr ? item.device() : ToString(kernel->opts)});
      continue;
    }
    JsonLine line;
    line.Number("index", static_cast<double>(i)).Text("name", name).Raw("shapes", ShapesJson(item));
    line.Text("device", item.device()).Number("flops", work).Number("bytes", moved);
    if (kernel != nullptr) {
      std::vector<std::string> opts;
      for (const Opt& opt : kernel->opts) opts.push_back(ToString(opt));
      line.Texts("opts", opts).Text("kernel_hash", kernel->hash);
    }
    line.Print();
  }
  const MemoryPlan memory = PlanMemory(model.schedule);
  if (json) {
    return JsonLine()
        .Number("kernels", model.schedule.kernel_count())
        .Number("distinct", static_cast<double>(model.kernels.size()))
        .Number("flops", operations)
        .Number("bytes", bytes)
        .Number("internal_bytes", static_cast<double>(memory.unshared_bytes))
        .Number("peak_bytes", static_cast<double>(memory.peak_bytes))
        .Print();
  }
  std::fputs(table.ToText().c_str(), stdout);
  std::printf("%d kernels, %d of them different: %s flops, %s bytes\n",
              model.schedule.kernel_count(), static_cast<int>(model.kernels.size()),
              CountText(operations).c_str(), CountText(bytes).c_str());
  std::printf("between them %s bytes in %d buffers, which share %s\n",
              CountText(static_cast<double>(memory.unshared_bytes)).c_str(),
              static_cast<int>(model.schedule.internal.size()),
              CountText(static_cast<double>(memory.peak_bytes)).c_str());
}

}  // namespace beamd
