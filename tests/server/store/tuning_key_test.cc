#include "server/store/tuning_key.h"

#include <set>
#include <string>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;

// Gives the field another value than its default.
void Change(Message& message, const FieldDescriptor& field) {
  const google::protobuf::Reflection& r = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return r.SetInt32(&message, &field, 7);
    case FieldDescriptor::CPPTYPE_UINT32:
      return r.SetUInt32(&message, &field, 7);
    case FieldDescriptor::CPPTYPE_UINT64:
      return r.SetUInt64(&message, &field, 7);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return r.SetDouble(&message, &field, 7);
    case FieldDescriptor::CPPTYPE_BOOL:
      return r.SetBool(&message, &field, true);
    case FieldDescriptor::CPPTYPE_STRING:
      return r.SetString(&message, &field, "seven");
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      Message& inner = *r.MutableMessage(&message, &field);
      return Change(inner, *inner.GetDescriptor()->FindFieldByName("nanos"));
    }
    default:
      FAIL() << field.full_name() << " has a type that this test doesn't know";
  }
}

TEST(HashTuningKey, DependsOnEveryFieldOfTheEnvironment) {
  std::set<std::string> keys = {HashTuningKey({}, {}, {}).Hex()};
  const auto& fields = *v1::Environment::descriptor();
  for (int i = 0; i < fields.field_count(); ++i) {
    v1::Environment environment;
    Change(environment, *fields.field(i));
    EXPECT_TRUE(keys.insert(HashTuningKey({}, {}, environment).Hex()).second)
        << fields.field(i)->name();
    EXPECT_NE(HashTimingKey({}, {}, environment, {}), HashTimingKey({}, {}, {}, {}))
        << fields.field(i)->name();
  }
}

TEST(HashTuningKey, DependsOnTheOptionsThatChangeResultsAndOnNoOther) {
  const std::set<std::string> free = {"parallel", "strict", "debug"};
  std::set<std::string> keys = {HashTuningKey({}, {}, {}).Hex()};
  const auto& fields = *v1::SearchOptions::descriptor();
  for (int i = 0; i < fields.field_count(); ++i) {
    v1::SearchOptions options;
    Change(options, *fields.field(i));
    EXPECT_EQ(keys.insert(HashTuningKey({}, options, {}).Hex()).second,
              free.count(fields.field(i)->name()) == 0)
        << fields.field(i)->name();
  }
}

TEST(HashTuningKey, DependsOnTheKernel) {
  EXPECT_NE(HashTuningKey(HashBytes("a"), {}, {}), HashTuningKey(HashBytes("b"), {}, {}));
}

// These are in stores: a change here needs a new schema.
TEST(HashTuningKey, StaysTheSameFromBuildToBuild) {
  EXPECT_EQ(HashTuningKey({}, {}, {}).Hex(),
            "ba6e50e12254b228fb3f1b3f0bb452fb588c8cf4fa9d476d0d1b00e8274e2c2b");
  EXPECT_EQ(HashTimingKey({}, {}, {}, {Opt{.op = OptOp::kUpcast, .axis = 0, .amount = 4}}).Hex(),
            "13c5e2020778b0f920f539d42d98614fd8fd89c10200ad0c8efde0e01d1cbce9");
}

TEST(HashTimingKey, DependsOnTheOptionsThatChangeWhatAListMakes) {
  std::set<std::string> keys;
  v1::SearchOptions plain, shapes, tf32, wide;
  shapes.set_tc(2);
  tf32.set_allow_tf32(true);
  for (const v1::SearchOptions& options : {plain, shapes, tf32}) {
    EXPECT_TRUE(keys.insert(HashTimingKey({}, options, {}, {}).Hex()).second);
  }
  wide.set_width(8);
  EXPECT_EQ(HashTimingKey({}, wide, {}, {}), HashTimingKey({}, {}, {}, {}));
}

TEST(HashTimingKey, TellsOptListsApart) {
  const Opt none{.op = OptOp::kUpcast};
  const Opt zero{.op = OptOp::kUpcast, .axis = 0};
  const Opt amount{.op = OptOp::kUpcast, .amount = 0};
  std::set<std::string> keys;
  for (const std::vector<Opt>& opts :
       {std::vector<Opt>{}, {none}, {zero}, {amount}, {zero, amount}, {amount, zero}}) {
    EXPECT_TRUE(keys.insert(HashTimingKey({}, {}, {}, opts).Hex()).second) << ToString(opts);
  }
}

}  // namespace
}  // namespace beamd
