#include "engine/llvm/host.h"

#include <map>
#include <string>

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/TargetParser/Host.h"

namespace beamd {

TargetCaps HostCaps() {
  std::map<std::string, bool> features;
  for (const auto& f : llvm::sys::getHostCPUFeatures()) features[f.getKey().str()] = f.getValue();
  return CpuTarget(llvm::sys::getHostCPUName().str(), features);
}

}  // namespace beamd
