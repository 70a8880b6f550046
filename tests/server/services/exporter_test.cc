#include "server/services/exporter.h"

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "rocksdb/db.h"

namespace beamd {
namespace {

TEST(Exporter, LeavesOutWhatCannotBeReadAndGoesOn) {
  const std::string directory = absl::StrCat(testing::TempDir(), "exporter");
  std::filesystem::remove_all(directory);
  std::unique_ptr<Store> store = *Store::Open(directory);
  for (int i = 0; i < 200; ++i) {
    v1::Record record;
    record.set_key(HashBytes(absl::StrCat("key", i)).Hex());
    record.set_kernel_hash(HashBytes(absl::StrCat("kernel", i)).Hex());
    v1::Graph graph;
    graph.add_nodes()->set_op(v1::OP_SINK);
    ASSERT_TRUE(store->PutRecord(record, graph).ok());
  }
  store.reset();
  rocksdb::DB* opened = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open({}, directory, &opened).ok());
  std::unique_ptr<rocksdb::DB> db(opened);
  const Digest damaged = HashBytes("kernel100");
  ASSERT_TRUE(
      db->Put({}, "g" + std::string(damaged.bytes.begin(), damaged.bytes.end()), "no graph").ok());
  db.reset();
  store = *Store::Open(directory);
  Exporter exporter(*store, std::nullopt);
  int records = 0;
  while (true) {
    const absl::StatusOr<std::unique_ptr<v1::ExportedRecord>> next = exporter.Next();
    ASSERT_TRUE(next.ok()) << next.status();
    if (*next == nullptr) break;
    EXPECT_NE((*next)->record().kernel_hash(), damaged.Hex());
    EXPECT_EQ((*next)->graph().nodes_size(), 1);
    ++records;
  }
  EXPECT_EQ(records, 199);
  EXPECT_EQ(exporter.left_out(), 1);
}

}  // namespace
}  // namespace beamd
