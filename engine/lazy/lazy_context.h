// Where lazy buffers live: the graph that holds symbolic sizes, the cache that makes equal nodes
// one, the values bound to variables, and the runtime that realises.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/node_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/lazy/tensor_buffer.h"
#include "engine/shape/sint.h"
#include "engine/uop/uop.h"

namespace beamd {

class LazyBuffer;
class LazyMaker;
struct LazyNode;

// Computes lazy buffers: schedules, compiles, runs. Implemented above the engine.
class Realizer {
 public:
  virtual ~Realizer() = default;
  // Computes every one of `roots` that isn't realised yet. On an error none of them is, and all can
  // be realised again.
  virtual absl::Status Realize(std::span<const LazyBuffer> roots) = 0;
  // Host bytes to and from a buffer; the sizes are equal. Write allocates what isn't.
  // FailedPrecondition: Read of a buffer without memory.
  virtual absl::Status Write(TensorBuffer& buffer, std::span<const std::byte> bytes) = 0;
  virtual absl::Status Read(const TensorBuffer& buffer, std::span<std::byte> bytes) = 0;
};

// What a layer above keeps with a context.
class ContextExtension {
 public:
  virtual ~ContextExtension() = default;
};

// Outlives every LazyBuffer made in it. Confined to one thread at a time.
class LazyContext {
 public:
  // `device` is where tensors are made unless told otherwise. `realizer` may be null: then nothing
  // is realised, and tensors made of host data keep it until one is set.
  explicit LazyContext(std::string device = "cpu:0", Realizer* realizer = nullptr);
  ~LazyContext();
  LazyContext(const LazyContext&) = delete;
  LazyContext& operator=(const LazyContext&) = delete;

  const std::string& device() const { return device_; }
  Realizer* realizer() const { return realizer_; }
  void set_realizer(Realizer* realizer) { realizer_ = realizer; }

  // Holds the expressions of symbolic sizes.
  UOpGraph& graph() { return graph_; }
  // A variable, usable in sizes and as a constant's value. Bounds inclusive.
  UOp Variable(const std::string& name, int64_t min, int64_t max);
  // The value that a variable has when something is realised from now on.
  // InvalidArgument: no variable of this context, or a value outside its bounds.
  absl::Status Bind(UOp variable, int64_t value);
  // Values by variable name.
  const absl::flat_hash_map<std::string, int64_t>& bindings() const { return bindings_; }

  // Where engine/tensor keeps its random state.
  std::unique_ptr<ContextExtension>& extension() { return extension_; }
  // Gradients aren't recorded while set (0.10.0: Tensor.no_grad).
  bool no_grad = false;
  // Dropout and batch statistics are on while set (0.10.0: Tensor.training).
  bool training = false;
  Scalar default_float = Scalar::kFloat32;
  Scalar default_int = Scalar::kInt32;

  size_t live_nodes() const { return live_nodes_; }

 private:
  friend class LazyMaker;
  friend struct LazyNode;
  struct CacheHash {
    size_t operator()(const LazyNode* node) const;
  };
  struct CacheEqual {
    bool operator()(const LazyNode* a, const LazyNode* b) const;
  };

  // One string a name, so that nodes compare devices by address.
  const std::string* InternDevice(absl::string_view device);

  std::string device_;
  absl::node_hash_set<std::string> devices_;
  Realizer* realizer_;
  UOpGraph graph_;
  absl::flat_hash_set<LazyNode*, CacheHash, CacheEqual> cache_;
  absl::flat_hash_map<std::string, int64_t> bindings_;
  std::unique_ptr<ContextExtension> extension_;
  size_t live_nodes_ = 0;
  uint64_t next_id_ = 0;
};

}  // namespace beamd
