#include "engine/base/memory_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace beamd {
namespace {

std::string Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(MemoryFile, ItsPathStaysWhileItsContentIsReplaced) {
  MemoryFile file;
  ASSERT_TRUE(file.Set("one").ok());
  const std::string path = file.path();
  EXPECT_EQ(Read(path), "one");
  const std::string large(3 << 20, 'x');
  ASSERT_TRUE(file.Set(large).ok());
  EXPECT_EQ(file.path(), path);
  EXPECT_EQ(Read(path), large);
}

TEST(MemoryFile, IsGoneWithTheObject) {
  std::string path;
  {
    MemoryFile file;
    ASSERT_TRUE(file.Set("x").ok());
    path = file.path();
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace beamd
