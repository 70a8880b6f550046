#include "tests/testing/faulty_files.h"

#include <string>
#include <utility>

#include "rocksdb/file_system.h"

namespace beamd::testing {
namespace {

using rocksdb::FileOptions;
using rocksdb::FSWritableFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;
using Fault = std::shared_ptr<std::atomic<FileFault>>;

IOStatus Change(const Fault& fault) {
  return *fault == FileFault::kReadOnly ? IOStatus::IOError("Read-only file system")
                                        : IOStatus::OK();
}
IOStatus Grow(const Fault& fault) {
  return *fault == FileFault::kFull ? IOStatus::NoSpace("No space left on device") : Change(fault);
}
IOStatus Settle(const Fault& fault) {
  return *fault == FileFault::kNoSync ? IOStatus::IOError("Input/output error") : Grow(fault);
}

class File final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  File(std::unique_ptr<FSWritableFile>&& file, Fault fault)
      : FSWritableFileOwnerWrapper(std::move(file)), fault_(std::move(fault)) {}

  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* dbg) override {
    const IOStatus status = Grow(fault_);
    return status.ok() ? FSWritableFileOwnerWrapper::Append(data, options, dbg) : status;
  }
  IOStatus Append(const Slice& data, const IOOptions& options,
                  const rocksdb::DataVerificationInfo& info, IODebugContext* dbg) override {
    const IOStatus status = Grow(fault_);
    return status.ok() ? FSWritableFileOwnerWrapper::Append(data, options, info, dbg) : status;
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* dbg) override {
    const IOStatus status = Settle(fault_);
    return status.ok() ? FSWritableFileOwnerWrapper::Sync(options, dbg) : status;
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* dbg) override {
    const IOStatus status = Settle(fault_);
    return status.ok() ? FSWritableFileOwnerWrapper::Fsync(options, dbg) : status;
  }

 private:
  const Fault fault_;
};

class Files final : public rocksdb::FileSystemWrapper {
 public:
  explicit Files(Fault fault)
      : FileSystemWrapper(rocksdb::FileSystem::Default()), fault_(std::move(fault)) {}
  const char* Name() const override { return "FaultyFiles"; }

  IOStatus NewWritableFile(const std::string& name, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* result, IODebugContext* dbg) override {
    IOStatus status = Change(fault_);
    if (status.ok()) status = FileSystemWrapper::NewWritableFile(name, options, result, dbg);
    return Wrapped(status, result);
  }
  IOStatus ReopenWritableFile(const std::string& name, const FileOptions& options,
                              std::unique_ptr<FSWritableFile>* result,
                              IODebugContext* dbg) override {
    IOStatus status = Change(fault_);
    if (status.ok()) status = FileSystemWrapper::ReopenWritableFile(name, options, result, dbg);
    return Wrapped(status, result);
  }
  IOStatus DeleteFile(const std::string& name, const IOOptions& options,
                      IODebugContext* dbg) override {
    const IOStatus status = Change(fault_);
    return status.ok() ? FileSystemWrapper::DeleteFile(name, options, dbg) : status;
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      IODebugContext* dbg) override {
    const IOStatus status = Change(fault_);
    return status.ok() ? FileSystemWrapper::RenameFile(from, to, options, dbg) : status;
  }
  IOStatus LockFile(const std::string& name, const IOOptions& options, rocksdb::FileLock** lock,
                    IODebugContext* dbg) override {
    const IOStatus status = Change(fault_);
    return status.ok() ? FileSystemWrapper::LockFile(name, options, lock, dbg) : status;
  }
  IOStatus GetFreeSpace(const std::string& path, const IOOptions& options, uint64_t* free,
                        IODebugContext* dbg) override {
    IOStatus status = FileSystemWrapper::GetFreeSpace(path, options, free, dbg);
    if (*fault_ == FileFault::kFull) *free = 0;
    return status;
  }

 private:
  IOStatus Wrapped(IOStatus status, std::unique_ptr<FSWritableFile>* result) {
    if (status.ok()) *result = std::make_unique<File>(std::move(*result), fault_);
    return status;
  }

  const Fault fault_;
};

}  // namespace

FaultyFiles::FaultyFiles()
    : fault_(std::make_shared<std::atomic<FileFault>>(FileFault::kNone)),
      env_(rocksdb::NewCompositeEnv(std::make_shared<Files>(fault_))) {}

}  // namespace beamd::testing
