#include "server/workers/codec.h"

#include <array>
#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "engine/base/error_detail.h"

namespace beamd {
namespace {

using Numbers = google::protobuf::RepeatedField<int64_t>;

void Set(const std::optional<std::array<int64_t, 3>>& from, Numbers& to) {
  if (from) to.Add(from->begin(), from->end());
}

std::optional<std::array<int64_t, 3>> Three(const Numbers& from) {
  if (from.size() != 3) return std::nullopt;
  return std::array<int64_t, 3>{from[0], from[1], from[2]};
}

}  // namespace

WireOpts ToWire(const std::vector<Opt>& opts) {
  WireOpts wire;
  for (const Opt& opt : opts) {
    v1::Opt& to = *wire.Add();
    to.set_op(static_cast<v1::OptOp>(opt.op));
    if (opt.axis) to.set_axis(*opt.axis);
    if (opt.amount) to.set_amount(*opt.amount);
  }
  return wire;
}

std::vector<Opt> FromWire(const WireOpts& opts) {
  std::vector<Opt> out;
  for (const v1::Opt& from : opts) {
    Opt& opt = out.emplace_back();
    opt.op = static_cast<OptOp>(from.op());
    if (from.has_axis()) opt.axis = from.axis();
    if (from.has_amount()) opt.amount = from.amount();
  }
  return out;
}

internal::Caps ToFrame(const TargetCaps& caps) {
  internal::Caps to;
  to.set_kind(static_cast<uint32_t>(caps.kind));
  to.set_arch(caps.arch);
  to.set_features(caps.features);
  to.set_has_local(caps.has_local);
  to.set_has_shared(caps.has_shared);
  to.set_shared_bytes(caps.shared_bytes);
  Set(caps.global_max, *to.mutable_global_max());
  Set(caps.local_max, *to.mutable_local_max());
  to.set_vector_bytes(static_cast<uint32_t>(caps.vector_bytes));
  to.set_wave_size(static_cast<uint32_t>(caps.wave_size));
  to.set_code_object_version(static_cast<uint32_t>(caps.code_object_version));
  to.set_code_form(static_cast<uint32_t>(caps.code_form));
  to.set_tensor_cores(static_cast<uint32_t>(caps.tensor_cores));
  to.set_allow_tf32(caps.allow_tf32);
  return to;
}

TargetCaps FromFrame(const internal::Caps& caps) {
  return {.kind = static_cast<TargetKind>(caps.kind()),
          .arch = caps.arch(),
          .features = caps.features(),
          .has_local = caps.has_local(),
          .has_shared = caps.has_shared(),
          .shared_bytes = caps.shared_bytes(),
          .global_max = Three(caps.global_max()),
          .local_max = Three(caps.local_max()),
          .vector_bytes = static_cast<int>(caps.vector_bytes()),
          .wave_size = static_cast<int>(caps.wave_size()),
          .code_object_version = static_cast<int>(caps.code_object_version()),
          .code_form = static_cast<CodeForm>(caps.code_form()),
          .tensor_cores = static_cast<TensorCoreUse>(caps.tensor_cores()),
          .allow_tf32 = caps.allow_tf32()};
}

internal::Image ToFrame(const KernelImage& image) {
  internal::Image to;
  to.set_kind(static_cast<uint32_t>(image.kind));
  to.set_code(image.code);
  to.set_entry(image.entry);
  for (const KernelImage::Buffer& from : image.buffers) {
    internal::Image::Buffer& buffer = *to.add_buffers();
    buffer.set_slot(from.slot);
    buffer.set_scalar(static_cast<uint32_t>(from.scalar));
    buffer.set_size_elements(from.size_elements);
    buffer.set_read(from.read);
    buffer.set_written(from.written);
  }
  for (const KernelImage::Variable& from : image.variables) {
    internal::Image::Variable& variable = *to.add_variables();
    variable.set_name(from.name);
    variable.set_min(from.min);
    variable.set_max(from.max);
  }
  to.set_slices(image.slices);
  Set(image.global_size, *to.mutable_global_size());
  Set(image.local_size, *to.mutable_local_size());
  to.set_shared_bytes(image.shared_bytes);
  to.set_uop_count(image.uop_count);
  to.set_compute_ops(image.compute_ops);
  to.set_bytes(image.bytes);
  return to;
}

KernelImage FromFrame(const internal::Image& image) {
  KernelImage to;
  to.kind = static_cast<TargetKind>(image.kind());
  to.code = image.code();
  to.entry = image.entry();
  for (const internal::Image::Buffer& from : image.buffers()) {
    to.buffers.push_back({.slot = from.slot(),
                          .scalar = static_cast<Scalar>(from.scalar()),
                          .size_elements = from.size_elements(),
                          .read = from.read(),
                          .written = from.written()});
  }
  for (const internal::Image::Variable& from : image.variables()) {
    to.variables.push_back({.name = from.name(), .min = from.min(), .max = from.max()});
  }
  to.slices = image.slices();
  to.global_size = Three(image.global_size()).value_or(to.global_size);
  to.local_size = Three(image.local_size()).value_or(to.local_size);
  to.shared_bytes = image.shared_bytes();
  to.uop_count = image.uop_count();
  to.compute_ops = image.compute_ops();
  to.bytes = image.bytes();
  return to;
}

internal::Outcome ToFrame(const absl::Status& status) {
  internal::Outcome to;
  to.set_code(static_cast<int>(status.code()));
  to.set_message(std::string(status.message()));
  if (const auto detail = status.GetPayload(kErrorDetailUrl)) to.set_detail(std::string(*detail));
  return to;
}

absl::Status FromFrame(const internal::Outcome& outcome) {
  absl::Status status(static_cast<absl::StatusCode>(outcome.code()), outcome.message());
  if (!status.ok() && !outcome.detail().empty()) {
    status.SetPayload(kErrorDetailUrl, absl::Cord(outcome.detail()));
  }
  return status;
}

}  // namespace beamd
