#include "client/beamctl/format.h"

#include "gtest/gtest.h"

namespace beamd {
namespace {

TEST(TimeText, HasThreeDigitsAndAUnit) {
  EXPECT_EQ(TimeText(0), "-");
  EXPECT_EQ(TimeText(1.2345e-4), "123 us");
  EXPECT_EQ(TimeText(0.0021), "2.1 ms");
  EXPECT_EQ(TimeText(12), "12 s");
}

TEST(CountText, HasThreeDigitsAndAPrefix) {
  EXPECT_EQ(CountText(0), "0");
  EXPECT_EQ(CountText(999), "999");
  EXPECT_EQ(CountText(999.9), "1 k");
  EXPECT_EQ(CountText(25739264), "25.7 M");
  EXPECT_EQ(CountText(3e19), "3e+04 P");
}

TEST(TextTable, AlignsColumns) {
  TextTable table({"<kernel", "used", "<opts"});
  table.Row({"r_4", "12", "UPCAST(0, 4)"});
  table.Row({"E_256_4", "3"});
  EXPECT_EQ(table.ToText(),
            "kernel   used  opts\n"
            "r_4        12  UPCAST(0, 4)\n"
            "E_256_4     3\n");
}

}  // namespace
}  // namespace beamd
