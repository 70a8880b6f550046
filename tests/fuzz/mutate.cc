#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

namespace beamd::testing {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

template <typename T>
T Pick(std::mt19937_64& random, T least, T most) {
  return std::uniform_int_distribution<T>(least, most)(random);
}

int64_t Number(int64_t old, std::mt19937_64& random) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const std::array<int64_t, 14> values = {
      0, 1, -1,
      // Wraps on purpose, without being undefined.
      static_cast<int64_t>(static_cast<uint64_t>(old) + 1),
      static_cast<int64_t>(static_cast<uint64_t>(old) - 1),
      static_cast<int64_t>(-static_cast<uint64_t>(old)),
      static_cast<int64_t>(static_cast<uint64_t>(old) * 2), Pick<int64_t>(random, 0, 300),
      int64_t{1} << Pick(random, 0, 62), std::numeric_limits<int32_t>::max(),
      std::numeric_limits<uint32_t>::max(), kMost, -kMost - 1, static_cast<int64_t>(random())};
  return values[Pick<size_t>(random, 0, values.size() - 1)];
}

double Real(std::mt19937_64& random) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::array<double, 7> values = {
      0, -0.0, 1e-320, kInfinity, -kInfinity, 1e308, std::numeric_limits<double>::quiet_NaN()};
  return values[Pick<size_t>(random, 0, values.size() - 1)];
}

// A part that a field holds, anywhere below the message.
struct Place {
  Message* message;
  const FieldDescriptor* field;
  int index;  // of a repeated field, else -1
};

void Collect(Message& message, std::vector<Place>& places) {
  const Reflection& values = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  values.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->is_map()) continue;
    const int count = field->is_repeated() ? values.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      places.push_back({&message, field, field->is_repeated() ? i : -1});
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
      Collect(field->is_repeated() ? *values.MutableRepeatedMessage(&message, field, i)
                                   : *values.MutableMessage(&message, field),
              places);
    }
  }
}

// The message and those below it.
void CollectMessages(Message& message, std::vector<Message*>& messages) {
  messages.push_back(&message);
  std::vector<Place> places;
  Collect(message, places);
  for (const auto& [parent, field, index] : places) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const Reflection& values = *parent->GetReflection();
    messages.push_back(index >= 0 ? values.MutableRepeatedMessage(parent, field, index)
                                  : values.MutableMessage(parent, field));
  }
}

void SetScalar(const Place& place, std::mt19937_64& random) {
  const Reflection& v = *place.message->GetReflection();
  Message* m = place.message;
  const FieldDescriptor* f = place.field;
  const int i = place.index;
  switch (f->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64: {
      const int64_t x = Number(i < 0 ? v.GetInt64(*m, f) : v.GetRepeatedInt64(*m, f, i), random);
      return i < 0 ? v.SetInt64(m, f, x) : v.SetRepeatedInt64(m, f, i, x);
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      const auto x = static_cast<uint64_t>(Number(7, random));
      return i < 0 ? v.SetUInt64(m, f, x) : v.SetRepeatedUInt64(m, f, i, x);
    }
    case FieldDescriptor::CPPTYPE_INT32: {
      const auto x = static_cast<int32_t>(Number(7, random));
      return i < 0 ? v.SetInt32(m, f, x) : v.SetRepeatedInt32(m, f, i, x);
    }
    case FieldDescriptor::CPPTYPE_UINT32: {
      const int64_t old = i < 0 ? v.GetUInt32(*m, f) : v.GetRepeatedUInt32(*m, f, i);
      const auto x = static_cast<uint32_t>(Number(old, random));
      return i < 0 ? v.SetUInt32(m, f, x) : v.SetRepeatedUInt32(m, f, i, x);
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int x = static_cast<int>(Number(Pick(random, 0, 100), random));
      return i < 0 ? v.SetEnumValue(m, f, x) : v.SetRepeatedEnumValue(m, f, i, x);
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      const bool x = Pick(random, 0, 1) == 1;
      return i < 0 ? v.SetBool(m, f, x) : v.SetRepeatedBool(m, f, i, x);
    }
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return i < 0 ? v.SetDouble(m, f, Real(random)) : v.SetRepeatedDouble(m, f, i, Real(random));
    case FieldDescriptor::CPPTYPE_FLOAT: {
      const auto x = static_cast<float>(Real(random));
      return i < 0 ? v.SetFloat(m, f, x) : v.SetRepeatedFloat(m, f, i, x);
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string x(Pick<size_t>(random, 0, 600), Pick(random, 0, 1) == 0 ? 'a' : '/');
      return i < 0 ? v.SetString(m, f, x) : v.SetRepeatedString(m, f, i, x);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return;
  }
}

// Adds one element, which says nothing yet, to a list.
void Add(Message* m, const FieldDescriptor* f) {
  const Reflection& v = *m->GetReflection();
  switch (f->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      return v.AddInt64(m, f, 0);
    case FieldDescriptor::CPPTYPE_UINT64:
      return v.AddUInt64(m, f, 0);
    case FieldDescriptor::CPPTYPE_INT32:
      return v.AddInt32(m, f, 0);
    case FieldDescriptor::CPPTYPE_UINT32:
      return v.AddUInt32(m, f, 0);
    case FieldDescriptor::CPPTYPE_ENUM:
      return v.AddEnumValue(m, f, 0);
    case FieldDescriptor::CPPTYPE_BOOL:
      return v.AddBool(m, f, false);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return v.AddDouble(m, f, 0);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return v.AddFloat(m, f, 0);
    case FieldDescriptor::CPPTYPE_STRING:
      return v.AddString(m, f, "");
    case FieldDescriptor::CPPTYPE_MESSAGE:
      v.AddMessage(m, f);
  }
}

// Sets a field that may not be set, or adds to a list.
void SetAny(Message& message, std::mt19937_64& random) {
  std::vector<Message*> messages;
  CollectMessages(message, messages);
  Message* const m = messages[Pick<size_t>(random, 0, messages.size() - 1)];
  const int fields = m->GetDescriptor()->field_count();
  if (fields == 0) return;
  const FieldDescriptor* const f = m->GetDescriptor()->field(Pick(random, 0, fields - 1));
  const Reflection& values = *m->GetReflection();
  if (f->is_map()) return;
  if (f->is_repeated()) {
    Add(m, f);
    SetScalar({m, f, values.FieldSize(*m, f) - 1}, random);
  } else if (f->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    values.MutableMessage(m, f);
  } else {
    SetScalar({m, f, -1}, random);
  }
}

}  // namespace

void Splice(const Message& from, Message& into, std::mt19937_64& random) {
  const std::unique_ptr<Message> source(from.New());
  source->CopyFrom(from);
  std::vector<Place> places;
  Collect(*source, places);
  if (places.empty()) return;
  const Place place = places[Pick<size_t>(random, 0, places.size() - 1)];
  std::vector<Message*> messages;
  CollectMessages(into, messages);
  std::erase_if(messages, [&](const Message* message) {
    return message->GetDescriptor() != place.field->containing_type();
  });
  if (messages.empty()) return;
  Message* const target = messages[Pick<size_t>(random, 0, messages.size() - 1)];
  place.message->GetReflection()->SwapFields(place.message, target, {place.field});
}

void MutateFields(Message& message, std::mt19937_64& random) {
  std::vector<Place> places;
  Collect(message, places);
  const int what = Pick(random, 0, 7);
  if (places.empty() || what == 6) return SetAny(message, random);
  if (what == 7) return Splice(message, message, random);
  const Place place = places[Pick<size_t>(random, 0, places.size() - 1)];
  const Reflection& values = *place.message->GetReflection();
  if (place.index >= 0 && what < 3) {
    const int last = values.FieldSize(*place.message, place.field) - 1;
    values.SwapElements(place.message, place.field, place.index, Pick(random, 0, last));
    if (what == 1) values.RemoveLast(place.message, place.field);
    if (what == 2 && place.field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      values.AddMessage(place.message, place.field)
          ->CopyFrom(values.GetRepeatedMessage(*place.message, place.field, place.index));
    }
  } else if (what == 3) {
    values.ClearField(place.message, place.field);
  } else {
    SetScalar(place, random);
  }
}

void MutateBytes(std::string& bytes, std::mt19937_64& random) {
  if (bytes.empty()) return;
  const auto at = [&] { return Pick<size_t>(random, 0, bytes.size() - 1); };
  const size_t place = at();
  const size_t length = Pick<size_t>(random, 1, std::min<size_t>(16, bytes.size() - place));
  switch (Pick(random, 0, 5)) {
    case 0:
      bytes[place] = static_cast<char>(bytes[place] ^ (1 << Pick(random, 0, 7)));
      return;
    case 1:
      bytes[place] = static_cast<char>(Pick(random, 0, 255));
      return;
    case 2:
      bytes.erase(place, length);
      return;
    case 3:
      bytes.insert(at(), bytes.substr(place, length));
      return;
    case 4:
      bytes.resize(place);
      return;
    default:
      // A varint of ten bytes, the longest there is.
      bytes.replace(place, length, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
  }
}

}  // namespace beamd::testing
