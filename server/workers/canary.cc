#include "server/workers/canary.h"

#include <algorithm>
#include <future>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/status.h"
#include "engine/uop/text.h"
#include "engine/uop/uop.h"
#include "engine/uop/wire.h"

namespace beamd {
namespace {

// Sums of products: loads, a loop, arithmetic, stores.
constexpr absl::string_view kKernel = R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (32,48,1) strides (48,1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (32,48,64) strides (64,0,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = DEFINE_GLOBAL global float32* slot 2
%6 = VIEW void view[shape (32,48,64) strides (0,1,48) offset 0]
%7 = LOAD float32 (%5, %6)
%8 = MUL float32 (%4, %7)
%9 = REDUCE_AXIS float32 (%8) ADD axes (2)
%10 = STORE void (%0, %1, %9)
%11 = SINK void (%10))";

constexpr int kRounds = 10;
// A device this much slower than it was does not come of other load: its least run counts.
constexpr double kSlowest = 10;

}  // namespace

absl::StatusOr<Canary> MakeCanary(Supervisor& supervisor, PoolId workers,
                                  const internal::Caps& caps, absl::Duration limit) {
  UOpGraph graph;
  BEAMD_ASSIGN_OR_RETURN(const UOp sink, ParseText(kKernel, graph));
  auto context = std::make_shared<internal::AddContext>();
  context->set_id(supervisor.NewId());
  *context->mutable_graph() = ToProto(sink);
  *context->mutable_caps() = caps;

  PoolTask compile{.owner = supervisor.NewId(), .context = context, .limit = limit};
  compile.request.mutable_compile()->set_context(context->id());
  auto compiled = std::make_shared<std::promise<TaskEnd>>();
  std::future<TaskEnd> end = compiled->get_future();
  compile.done = [compiled](TaskEnd ended) { compiled->set_value(std::move(ended)); };
  supervisor.Submit(workers, std::move(compile));
  const TaskEnd ended = end.get();
  if (ended.outcome != TaskOutcome::kDone || ended.reply.compiled().failure() != 0) {
    return absl::UnavailableError(
        absl::StrCat("the known kernel does not compile: ", Name(ended.outcome), " ", ended.detail,
                     ended.reply.compiled().detail()));
  }

  Canary canary{.context = context, .requests = std::vector<internal::Frame>(2), .limit = limit};
  internal::VerifyRequest& verify = *canary.requests[0].mutable_verify();
  verify.set_context(context->id());
  *verify.mutable_image() = ended.reply.compiled().image();
  internal::TimeRequest& time = *canary.requests[1].mutable_time();
  *time.add_images() = ended.reply.compiled().image();
  time.set_warmups(1);
  time.set_rounds(kRounds);
  // On the supervisor's thread alone.
  auto usual = std::make_shared<double>(0);
  canary.check = [usual](size_t step, const internal::Frame& reply) -> absl::Status {
    if (step == 0) {
      if (reply.verified().failure() == 0 && !reply.verified().method().empty()) {
        return absl::OkStatus();
      }
      return absl::InternalError(absl::StrCat("wrong answer: ", reply.verified().detail()));
    }
    if (reply.timed().failure() != 0 || reply.timed().images().empty() ||
        reply.timed().images(0).seconds().empty()) {
      return absl::InternalError(absl::StrCat("no time: ", reply.timed().detail()));
    }
    const auto& seconds = reply.timed().images(0).seconds();
    const double least = *std::min_element(seconds.begin(), seconds.end());
    if (*usual == 0) *usual = least;
    if (least <= *usual * kSlowest) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("a launch takes ", least, " s, it was ", *usual, " s"));
  };
  return canary;
}

}  // namespace beamd
