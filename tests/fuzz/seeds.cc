// Writes the corpus that fuzzing starts from: a valid value of each kind, a file a value.
//
//   seeds DIR
#include <filesystem>
#include <fstream>
#include <string>

#include "proto/beamd/v1/admin.pb.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "tests/testing/daemon.h"

namespace beamd {
namespace {

void Write(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

void WriteSeeds(const std::filesystem::path& root) {
  for (const auto& [name, graph] :
       {std::pair("add", testing::AddKernel(64)), std::pair("matmul", testing::MatmulKernel(8))}) {
    v1::TuneRequest tune;
    *tune.mutable_graph() = graph;
    tune.mutable_search()->set_width(2);
    tune.mutable_budget()->set_seconds(3);
    tune.mutable_device()->set_kind("cpu");
    Write(root / "TuneRequest" / name, tune.SerializeAsString());
    v1::LookupRequest lookup;
    *lookup.add_queries()->mutable_graph() = graph;
    Write(root / "LookupRequest" / name, lookup.SerializeAsString());
    v1::ShowRequest show;
    *show.mutable_graph() = graph;
    show.set_pass("ast");
    Write(root / "ShowRequest" / name, show.SerializeAsString());
    // Behind the type and the version.
    Write(root / "stored" / name, std::string("\x01\x01", 2) + graph.SerializeAsString());
  }
  v1::ListRecordsRequest list;
  list.set_page_size(5);
  list.set_kernel_hash(std::string(64, 'a'));
  Write(root / "ListRecordsRequest" / "page", list.SerializeAsString());
  v1::GetRecordRequest get;
  get.set_key(std::string(64, 'b'));
  get.set_generation(1);
  Write(root / "GetRecordRequest" / "key", get.SerializeAsString());
  Write(root / "access" / "file",
        "token:ci reader " + std::string(64, 'c') + "\ncert:a admin\nuid:5 importer\nany reader\n");
  Write(root / "access" / "trace", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  Write(root / "access" / "config", "store: \"/s\" jobs: 2 compile_cores: [0, 1]\n");
}

}  // namespace
}  // namespace beamd

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  beamd::WriteSeeds(argv[1]);
  return 0;
}
