#include "tests/engine/llvm/program_builder.h"

#include <utility>

#include "devices/cpu/device.h"
#include "engine/base/status.h"
#include "engine/llvm/codegen.h"
#include "engine/llvm/host.h"

namespace beamd {

UOp ProgramBuilder::Append(UOp u) {
  if (u.id() >= listed_.size()) listed_.resize(u.id() + 1);
  if (!listed_[u.id()]) program_.ops.push_back(u);
  listed_[u.id()] = true;
  return u;
}

UOp ProgramBuilder::Buffer(Scalar scalar, int64_t size_elements, bool read, bool written) {
  const auto slot = static_cast<int32_t>(program_.image.buffers.size());
  program_.image.buffers.push_back({slot, scalar, size_elements, read, written});
  BufferArg arg;
  arg.id = slot;
  arg.size_elements = size_elements;
  return Append(graph_.Make(Op::kDefineGlobal, DType::Pointer(scalar, AddressSpace::kGlobal), {},
                            graph_.Intern(std::move(arg))));
}

UOp ProgramBuilder::Variable(std::string name, int64_t min, int64_t max) {
  program_.image.variables.push_back({name, min, max});
  return Append(graph_.Variable(std::move(name), min, max));
}

UOp ProgramBuilder::Special(std::string name, UOp extent) {
  KernelImage& image = program_.image;
  const int64_t size = extent.is_const() ? extent.int_value() : extent.data<VariableArg>().max;
  (name[0] == 'g' ? image.global_size : image.local_size)[name[1] - '0'] = size;
  return Append(
      graph_.Make(Op::kSpecial, Scalar::kInt32, {extent}, graph_.Intern(std::move(name))));
}

UOp ProgramBuilder::Shared(Scalar scalar, int64_t size_elements) {
  program_.image.shared_bytes += size_elements * SizeBytes(scalar);
  return Append(graph_.Make(Op::kDefineLocal, DType::Pointer(scalar, AddressSpace::kLocal),
                            {Int(size_elements)},
                            graph_.Intern(std::string(1, static_cast<char>('a' + shared_++)))));
}

void ProgramBuilder::Barrier() {
  Append(graph_.Make(Op::kBarrier, Scalar::kVoid, {Int(barriers_++)}));
}

UOp ProgramBuilder::Range(UOp extent) {
  RangeArg arg;
  arg.axis = static_cast<int32_t>(ranges_++);
  return Append(graph_.Make(Op::kRange, extent.dtype(), {extent}, graph_.Intern(arg)));
}

UOp ProgramBuilder::Acc(UOp initial, std::initializer_list<UOp> ranges) {
  std::vector<UOp> src = {initial};
  src.insert(src.end(), ranges.begin(), ranges.end());
  const UOp acc = graph_.Make(Op::kAcc, initial.dtype(), src, Arg::Int(accs_++));
  // It stands before its ranges.
  auto& ops = program_.ops;
  auto place = ops.end();
  for (const UOp range : ranges) place = std::min(place, std::ranges::find(ops, range));
  ops.insert(place, acc);
  return acc;
}

UOp ProgramBuilder::Load(UOp buffer, UOp index, int lanes, UOp valid, int alignment) {
  const UOp address = valid ? Add(Op::kIndex, buffer.dtype(), {buffer, index, valid})
                            : Add(Op::kIndex, buffer.dtype(), {buffer, index});
  const UOp load = Add(Op::kLoad, DType(buffer.scalar(), lanes), {address});
  program_.index_alignment.resize(graph_.size(), 1);
  program_.index_alignment[load.id()] = alignment;
  return load;
}

void ProgramBuilder::Store(UOp buffer, UOp index, UOp value, UOp valid, int alignment) {
  const UOp address = valid ? Add(Op::kIndex, buffer.dtype(), {buffer, index, valid})
                            : Add(Op::kIndex, buffer.dtype(), {buffer, index});
  const UOp store = Add(Op::kStore, Scalar::kVoid, {address, value});
  program_.index_alignment.resize(graph_.size(), 1);
  program_.index_alignment[store.id()] = alignment;
}

UOp ProgramBuilder::Alu(Op op, UOp a, UOp b) {
  return Add(op, kComparison.Has(op) ? DType(Scalar::kBool, a.lanes()) : a.dtype(), {a, b});
}

UOp ProgramBuilder::Splat(UOp u, int lanes) {
  const std::vector<UOp> src(lanes, u);
  return Append(graph_.Make(Op::kVectorize, DType(u.scalar(), lanes), src));
}

UOp ProgramBuilder::Gep(UOp u, std::vector<int64_t> lanes) {
  const DType dtype(u.scalar(), static_cast<int>(lanes.size()));
  return Append(graph_.Make(Op::kGep, dtype, {u}, graph_.Intern(LanesArg{std::move(lanes)})));
}

LinearProgram ProgramBuilder::Finish(UOp slice, int64_t slices) {
  program_.slice_range = slice;
  program_.image.slices = slices;
  program_.index_alignment.resize(graph_.size(), 1);
  return program_;
}

TargetCaps& TestTarget() {
  static auto* caps = new TargetCaps(HostCaps());
  return *caps;
}

absl::StatusOr<std::vector<std::string>> RunProgram(const LinearProgram& program,
                                                    std::vector<std::string> buffers,
                                                    std::vector<int64_t> variables, int64_t begin,
                                                    int64_t end) {
  static Device* device = OpenCpuDevice()->release();
  static TargetCaps* caps = new TargetCaps;
  static CodeGenerator* generator = nullptr;
  if (generator == nullptr || *caps != TestTarget()) {
    delete generator;
    *caps = TestTarget();
    generator = CodeGenerator::Create(*caps)->release();
  }
  BEAMD_ASSIGN_OR_RETURN(const KernelImage image, generator->Generate(program));
  BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<Executable> exe, device->Load(image));
  std::vector<std::unique_ptr<Buffer>> memory;
  std::vector<Buffer*> pointers;
  for (const std::string& bytes : buffers) {
    BEAMD_ASSIGN_OR_RETURN(memory.emplace_back(), device->Allocate(bytes.size()));
    BEAMD_RETURN_IF_ERROR(memory.back()->Write(0, std::as_bytes(std::span(bytes))));
    pointers.push_back(memory.back().get());
  }
  Launch launch;
  launch.buffers = pointers;
  launch.variables = variables;
  launch.begin = begin;
  launch.end = end < 0 ? image.slices : end;
  BEAMD_RETURN_IF_ERROR(device->Run(*exe, launch).status());
  for (size_t i = 0; i < buffers.size(); ++i) {
    BEAMD_RETURN_IF_ERROR(memory[i]->Read(0, std::as_writable_bytes(std::span(buffers[i]))));
  }
  return buffers;
}

absl::StatusOr<std::string> MapElements(Op op, Scalar result, std::vector<Scalar> scalars,
                                        std::vector<std::string> inputs, int lanes) {
  const auto count = static_cast<int64_t>(inputs[0].size()) / SizeBytes(scalars[0]);
  ProgramBuilder p;
  const UOp out = p.Buffer(result, count, false, true);
  std::vector<UOp> in;
  in.reserve(scalars.size());
  for (const Scalar s : scalars) in.push_back(p.Buffer(s, count, true, false));
  const UOp range = p.Range(count / lanes);
  const UOp index = p.Alu(Op::kMul, range, p.Int(lanes));
  std::vector<UOp> src;
  src.reserve(in.size());
  for (const UOp buffer : in) src.push_back(p.Load(buffer, index, lanes, nullptr, lanes));
  const UOp value = p.Append(p.graph().Make(op, DType(result, lanes), src));
  p.Store(out, index, value, nullptr, lanes);
  p.End(range);
  std::vector<std::string> buffers = {std::string(count * SizeBytes(result), '\xAA')};
  buffers.insert(buffers.end(), inputs.begin(), inputs.end());
  BEAMD_ASSIGN_OR_RETURN(buffers, RunProgram(p.Finish(range, count / lanes), std::move(buffers)));
  return buffers[0];
}

}  // namespace beamd
