#include "server/store/database.h"

#include <atomic>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

TEST(Database, CallsAreRefusedWhileARepairTakesLong) {
  const std::string directory = absl::StrCat(testing::TempDir(), "database.long");
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  std::atomic<bool> repairing = false, go_on = false;
  const std::unique_ptr<Database> database =
      *Database::Open(directory, {.retry = absl::Milliseconds(10),
                                  .prepare =
                                      [&](rocksdb::DB&, bool repaired) {
                                        repairing = repaired;
                                        while (repaired && !go_on) {
                                          absl::SleepFor(absl::Milliseconds(1));
                                        }
                                        return absl::OkStatus();
                                      },
                                  .salvage = [](absl::string_view) { return true; }});
  EXPECT_FALSE(database->health().mending);
  EXPECT_FALSE(database->Read(rocksdb::Status::Corruption("a block")).ok());
  while (!repairing) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_TRUE(database->health().mending);
  // The first wait for a while, the others don't.
  const absl::Time began = absl::Now();
  for (int i = 0; i < 1000; ++i) {
    const Database::Use use(*database);
    EXPECT_EQ(use.status().code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_LT(absl::Now() - began, absl::Seconds(20));
  go_on = true;
  while (database->health().mending) absl::SleepFor(absl::Milliseconds(1));
  const Database::Use use(*database);
  EXPECT_TRUE(use.status().ok()) << use.status();
}

}  // namespace
}  // namespace beamd
