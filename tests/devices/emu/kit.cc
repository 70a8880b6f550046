#include "tests/devices/emu/kit.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "gtest/gtest.h"
#include "llvm/AsmParser/Parser.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

namespace beamd::testing {

absl::StatusOr<std::string> Assemble(const std::string& text) {
  llvm::LLVMContext context;
  llvm::SMDiagnostic error;
  const std::unique_ptr<llvm::Module> module = llvm::parseAssemblyString(text, error, context);
  std::string bytes;
  llvm::raw_string_ostream stream(bytes);
  if (module == nullptr) {
    error.print("test", stream);
    return absl::InvalidArgumentError(bytes);
  }
  llvm::WriteBitcodeToFile(*module, stream);
  return bytes;
}

EmuKit::EmuKit(absl::string_view arch, uint64_t seed) {
  absl::StatusOr<TargetCaps> caps = EmuTarget(arch);
  EXPECT_TRUE(caps.ok()) << caps.status();
  absl::StatusOr<std::unique_ptr<Device>> device =
      OpenEmuDevice(*std::move(caps), EmuOptions{.seed = seed});
  EXPECT_TRUE(device.ok()) << device.status();
  device_ = *std::move(device);
}

std::string EmuKit::Header() const {
  // The address spaces of each; the rest of their data layouts doesn't matter to these kernels.
  return device_->caps().kind == TargetKind::kCuda
             ? "target datalayout = "
               "\"e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64\"\n"
               "target triple = \"nvptx64-nvidia-cuda\"\n"
             : "target datalayout = \"e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-"
               "A5-G1\"\n"
               "target triple = \"amdgcn-amd-amdhsa\"\n";
}

std::string EmuKit::Module(absl::string_view parameters, absl::string_view body,
                           absl::string_view globals) const {
  const absl::string_view convention =
      device_->caps().kind == TargetKind::kCuda ? "ptx_kernel" : "amdgpu_kernel";
  return absl::StrCat(Header(), globals, "\ndefine ", convention, " void @kernel(", parameters,
                      ") {\n", body, "\n}\n");
}

absl::StatusOr<KernelImage> EmuKit::Image(const std::string& module, const Shape& shape) const {
  KernelImage image;
  image.kind = device_->caps().kind;
  BEAMD_ASSIGN_OR_RETURN(image.code, Assemble(module));
  image.entry = "kernel";
  image.buffers = shape.buffers;
  image.variables = shape.variables;
  image.global_size = shape.groups;
  image.local_size = shape.items;
  image.shared_bytes = shape.shared_bytes;
  return image;
}

absl::Status EmuKit::Run(const std::string& module, const Shape& shape,
                         std::vector<std::vector<std::byte>>& memory,
                         const std::vector<int64_t>& variables) {
  BEAMD_ASSIGN_OR_RETURN(const KernelImage image, Image(module, shape));
  BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<Executable> executable, device_->Load(image));
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<Buffer*> pointers;
  for (const std::vector<std::byte>& bytes : memory) {
    BEAMD_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, device_->Allocate(bytes.size()));
    BEAMD_RETURN_IF_ERROR(buffer->Write(0, bytes));
    pointers.push_back(buffer.get());
    buffers.push_back(std::move(buffer));
  }
  Launch launch;
  launch.buffers = pointers;
  launch.variables = variables;
  BEAMD_RETURN_IF_ERROR(device_->Run(*executable, launch).status());
  for (size_t i = 0; i < memory.size(); ++i) {
    BEAMD_RETURN_IF_ERROR(buffers[i]->Read(0, memory[i]));
  }
  return absl::OkStatus();
}

KernelImage::Buffer Reads(int32_t slot, Scalar scalar, int64_t elements) {
  return {.slot = slot, .scalar = scalar, .size_elements = elements, .read = true};
}
KernelImage::Buffer Writes(int32_t slot, Scalar scalar, int64_t elements) {
  return {.slot = slot, .scalar = scalar, .size_elements = elements, .written = true};
}
KernelImage::Buffer ReadsAndWrites(int32_t slot, Scalar scalar, int64_t elements) {
  return {.slot = slot, .scalar = scalar, .size_elements = elements, .read = true, .written = true};
}

}  // namespace beamd::testing
