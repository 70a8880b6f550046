// A program outside of the tree: a product and its gradient, computed by the server at argv[1].
#include <cstdio>
#include <memory>
#include <vector>

#include "client/thin/errors.h"
#include "client/thin/session.h"
#include "client/thin/tensor.h"

int main(int argc, char** argv) {
  using namespace beamd::thin;
  if (argc != 2) return 2;
  absl::StatusOr<std::unique_ptr<Session>> session =
      Session::Open(argv[1], {.open_timeout = absl::Seconds(5)});
  if (!session.ok()) {
    std::printf("%s\n", session.status().ToString().c_str());
    return 1;
  }
  const Tensor w = Tensor::From<float>({1, 2, 3, 4}, {2, 2});
  const Tensor x = Tensor::From<float>({5, 6, 7, 8}, {2, 2});
  const Tensor sum = x.Matmul(w).Sum();
  absl::StatusOr<RunReport> report = Compute(**session, {sum}, {.gradients_of = {w}});
  if (!report.ok()) {
    std::printf("%s\n", report.status().ToString().c_str());
    return 1;
  }
  absl::StatusOr<float> value = sum.Item<float>(**session);
  absl::StatusOr<std::vector<float>> gradient = report->gradients[0].ToVector<float>(**session);
  if (!value.ok() || !gradient.ok()) return 1;
  std::printf("%g; %g %g %g %g\n", *value, (*gradient)[0], (*gradient)[1], (*gradient)[2],
              (*gradient)[3]);
  return x.Matmul(sum).ok() ? 1 : 0;
}
