// What one candidate costs between its linear program and running code: a float32 matrix product in
// tiles of 4 x 4 vectors, unrolled four times along the sum. GFLOP/s is that of the code.
#include <cstdint>
#include <memory>
#include <vector>

#include "benchmark/benchmark.h"
#include "devices/cpu/device.h"
#include "engine/base/status.h"
#include "engine/llvm/codegen.h"
#include "engine/llvm/host.h"
#include "tests/engine/llvm/program_builder.h"

namespace beamd {
namespace {

constexpr int64_t kSize = 256;

LinearProgram MatMul(ProgramBuilder& p, int rows, int vectors, int lanes, int unroll) {
  const DType vector(Scalar::kFloat32, lanes);
  const UOp c = p.Buffer(Scalar::kFloat32, kSize * kSize, false, true);
  const UOp a = p.Buffer(Scalar::kFloat32, kSize * kSize, true, false);
  const UOp b = p.Buffer(Scalar::kFloat32, kSize * kSize, true, false);
  const UOp zero = p.Float(0, vector);
  const UOp i = p.Range(kSize / rows);
  const UOp j = p.Range(kSize / (vectors * lanes));
  const UOp column = p.Alu(Op::kMul, j, p.Int(vectors * lanes));
  const UOp row = p.Alu(Op::kMul, i, p.Int(rows * kSize));
  const UOp k = p.Range(kSize / unroll);
  std::vector<UOp> accs, sums;
  for (int q = 0; q < rows * vectors; ++q) accs.push_back(p.Acc(zero, {k}));
  sums = accs;
  const UOp k0 = p.Alu(Op::kMul, k, p.Int(unroll));
  for (int u = 0; u < unroll; ++u) {
    const UOp ku = p.Alu(Op::kAdd, k0, p.Int(u));
    std::vector<UOp> right;
    for (int v = 0; v < vectors; ++v) {
      const UOp at = p.Alu(Op::kAdd, p.Alu(Op::kMul, ku, p.Int(kSize)), column);
      right.push_back(p.Load(b, p.Alu(Op::kAdd, at, p.Int(v * lanes)), lanes, nullptr, lanes));
    }
    for (int r = 0; r < rows; ++r) {
      const UOp at = p.Alu(Op::kAdd, p.Alu(Op::kAdd, row, p.Int(r * kSize)), ku);
      const UOp left = p.Splat(p.Load(a, at), lanes);
      for (int v = 0; v < vectors; ++v) {
        UOp& sum = sums[r * vectors + v];
        sum = p.Add(Op::kMulAcc, vector, {left, right[v], sum});
      }
    }
  }
  for (size_t q = 0; q < accs.size(); ++q) sums[q] = p.Assign(accs[q], sums[q]);
  p.End(k);
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) {
      const UOp at = p.Alu(Op::kAdd, p.Alu(Op::kAdd, row, column), p.Int(r * kSize + v * lanes));
      p.Store(c, at, sums[r * vectors + v], nullptr, lanes);
    }
  }
  p.End(j);
  p.End(i);
  return p.Finish(i, kSize / rows);
}

double GigaflopsOf(const KernelImage& image) {
  static Device* device = OpenCpuDevice()->release();
  const auto exe = device->Load(image);
  BEAMD_CHECK(exe.ok(), exe.status().message());
  std::vector<std::unique_ptr<Buffer>> memory;
  std::vector<Buffer*> pointers;
  for (int q = 0; q < 3; ++q) {
    memory.push_back(*device->Allocate(kSize * kSize * sizeof(float)));
    pointers.push_back(memory.back().get());
  }
  Launch launch;
  launch.buffers = pointers;
  launch.end = image.slices;
  absl::Duration least = absl::InfiniteDuration();
  for (int q = 0; q < 10; ++q) least = std::min(least, *device->Run(**exe, launch));
  return 2e-9 * static_cast<double>(kSize * kSize * kSize) / absl::ToDoubleSeconds(least);
}

void Compile(benchmark::State& state, PassPipeline passes, int level) {
  const int lanes = static_cast<int>(state.range(0)), unroll = static_cast<int>(state.range(1));
  ProgramBuilder p;
  const LinearProgram program = MatMul(p, 4, lanes == 0 ? 1 : 4, std::max(lanes, 1), unroll);
  const auto generator = CodeGenerator::Create(HostCaps(), {passes, level});
  BEAMD_CHECK(generator.ok(), generator.status().message());
  KernelImage image;
  for (auto _ : state) image = *(*generator)->Generate(program);
  state.counters["GFLOP/s"] = GigaflopsOf(image);
  state.counters["uops"] = static_cast<double>(program.ops.size());
  state.counters["bytes"] = static_cast<double>(image.code.size());
}

void Tiles(benchmark::internal::Benchmark* bench) {
  bench->Unit(benchmark::kMillisecond)->Args({8, 1})->Args({8, 4})->Args({16, 4});
}
BENCHMARK_CAPTURE(Compile, default, PassPipeline::kDefault, CodegenOptions().level)->Apply(Tiles);
BENCHMARK_CAPTURE(Compile, default_level2, PassPipeline::kDefault, 2)->Apply(Tiles);
BENCHMARK_CAPTURE(Compile, short_level1, PassPipeline::kShort, 1)->Apply(Tiles);
BENCHMARK_CAPTURE(Compile, O2_level2, PassPipeline::kO2, 2)->Apply(Tiles);

void Load(benchmark::State& state) {
  ProgramBuilder p;
  const auto generator = CodeGenerator::Create(HostCaps());
  const KernelImage image = *(*generator)->Generate(MatMul(p, 4, 4, 8, 4));
  const auto device = OpenCpuDevice();
  for (auto _ : state) BEAMD_CHECK((*device)->Load(image).ok(), "loads");
}
BENCHMARK(Load)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace beamd
