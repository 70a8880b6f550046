#include "tests/conformance/code_object.h"

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "llvm/BinaryFormat/ELF.h"
#include "llvm/BinaryFormat/MsgPackDocument.h"
#include "llvm/Object/ELFObjectFile.h"

namespace beamd::conformance {
namespace {

using llvm::msgpack::DocNode;
using llvm::object::ELF64LEObjectFile;

// The note's MsgPack text, empty where there is none.
llvm::StringRef Metadata(const ELF64LEObjectFile& object) {
  const auto& file = object.getELFFile();
  auto headers = file.program_headers();
  if (!headers) {
    llvm::consumeError(headers.takeError());
    return "";
  }
  for (const auto& header : *headers) {
    if (header.p_type != llvm::ELF::PT_NOTE) continue;
    llvm::Error error = llvm::Error::success();
    llvm::StringRef found;
    for (const auto& note : file.notes(header, error)) {
      if (note.getName() == "AMDGPU" && note.getType() == llvm::ELF::NT_AMDGPU_METADATA) {
        found = note.getDescAsStringRef(header.p_align);
      }
    }
    llvm::consumeError(std::move(error));
    if (!found.empty()) return found;
  }
  return "";
}

std::optional<uint64_t> Number(llvm::msgpack::MapDocNode& map, llvm::StringRef key) {
  const auto it = map.find(key);
  if (it == map.end()) return std::nullopt;
  if (it->second.getKind() == llvm::msgpack::Type::UInt) return it->second.getUInt();
  if (it->second.getKind() == llvm::msgpack::Type::Int) {
    return static_cast<uint64_t>(it->second.getInt());
  }
  return std::nullopt;
}

}  // namespace

std::string CodeObjectFaults(const KernelImage& image, const TargetCaps& caps) {
  auto object = ELF64LEObjectFile::create(
      llvm::MemoryBufferRef(llvm::StringRef(image.code.data(), image.code.size()), "kernel"));
  if (!object) return llvm::toString(object.takeError());
  std::vector<std::string> faults;
  const auto expect = [&](bool good, absl::string_view what) {
    if (!good) faults.emplace_back(what);
  };
  const auto& header = object->getELFFile().getHeader();
  expect(header.e_type == llvm::ELF::ET_DYN, "not a shared object");
  expect(header.e_machine == llvm::ELF::EM_AMDGPU, "not for AMDGPU");
  // "Code Object Version": ABI versions 2, 3, 4 are V4, V5, V6.
  expect(header.e_ident[llvm::ELF::EI_ABIVERSION] == caps.code_object_version - 2,
         "another code object version");
  bool has_descriptor = false, has_code = false;
  for (const auto& symbol : object->getDynamicSymbolIterators()) {
    auto name = symbol.getName();
    if (!name) return llvm::toString(name.takeError());
    has_code = has_code || *name == image.entry;
    has_descriptor = has_descriptor || *name == image.entry + ".kd";
    auto flags = symbol.getFlags();
    if (!flags) return llvm::toString(flags.takeError());
    expect(name->empty() || (*flags & llvm::object::SymbolRef::SF_Undefined) == 0,
           absl::StrCat("wants ", name->str(), " from outside"));
  }
  expect(has_code && has_descriptor, "no kernel of the entry's name");

  llvm::msgpack::Document document;
  if (!document.readFromBlob(Metadata(*object), /*Multi=*/false)) return "no metadata";
  auto& root = document.getRoot().getMap(/*Convert=*/true);
  expect(root["amdhsa.target"].toString() == absl::StrCat("amdgcn-amd-amdhsa--", caps.arch),
         absl::StrCat("target ", root["amdhsa.target"].toString()));
  auto& kernels = root["amdhsa.kernels"].getArray(/*Convert=*/true);
  if (kernels.size() != 1) return "not one kernel in the metadata";
  auto& kernel = kernels[0].getMap(/*Convert=*/true);
  const auto number = [&](const char* key, uint64_t want) {
    const std::optional<uint64_t> got = Number(kernel, key);
    expect(got == want,
           absl::StrCat(key, " ", got ? absl::StrCat(*got) : "absent", ", not ", want));
  };
  const size_t parameters = image.buffers.size() + image.variables.size();
  number(".kernarg_segment_size", 8 * parameters);
  expect(kernel[".args"].getArray(/*Convert=*/true).size() == parameters, "hidden arguments");
  number(".group_segment_fixed_size", static_cast<uint64_t>(image.shared_bytes));
  number(".wavefront_size", static_cast<uint64_t>(caps.wave_size));
  number(".max_flat_workgroup_size",
         static_cast<uint64_t>(image.local_size[0] * image.local_size[1] * image.local_size[2]));
  auto& sizes = kernel[".reqd_workgroup_size"].getArray(/*Convert=*/true);
  for (size_t axis = 0; axis < 3; ++axis) {
    expect(axis < sizes.size() && sizes[axis].getKind() == llvm::msgpack::Type::UInt &&
               sizes[axis].getUInt() == static_cast<uint64_t>(image.local_size[axis]),
           "another size of work-group");
  }
  const std::optional<uint64_t> registers = Number(kernel, ".vgpr_count");
  expect(registers && *registers <= 512, "no sane number of registers");
  return absl::StrJoin(faults, "; ");
}

}  // namespace beamd::conformance
