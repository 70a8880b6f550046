#include "server/store/salvage.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "rocksdb/iterator.h"
#include "rocksdb/sst_file_reader.h"

namespace beamd {
namespace {

// The first bytes of a key as a number: keys that differ only behind them are passed over together.
using Place = unsigned __int128;

Place PlaceOf(absl::string_view key) {
  Place place = 0;
  for (size_t i = 0; i < sizeof(Place); ++i) {
    place = place << 8 | (i < key.size() ? static_cast<unsigned char>(key[i]) : 0);
  }
  return place;
}

std::string KeyAt(Place place) {
  std::string key(sizeof(Place), '\0');
  for (size_t i = key.size(); i-- > 0; place >>= 8) key[i] = static_cast<char>(place & 0xff);
  return key;
}

// On the first key behind `last` from which the file is readable again, or on its end; null where it
// nowhere is. The file's index leads there, and only seeking can ask it.
std::unique_ptr<rocksdb::Iterator> PassGap(rocksdb::SstFileReader& reader, absl::string_view last) {
  const Place begin = PlaceOf(last);
  const Place room = ~Place{0} - begin;
  std::unique_ptr<rocksdb::Iterator> it;
  const auto readable = [&](Place step) {
    // A fresh one: what failed to read a block keeps failing in its neighbourhood.
    it.reset(reader.NewIterator({}));
    it->Seek(KeyAt(begin + step));
    return it->status().ok();
  };
  Place high = 1;
  while (high <= room && !readable(high)) {
    if (high > room / 2) return nullptr;
    high *= 2;
  }
  Place low = high / 2;
  while (high - low > 1) {
    const Place middle = low + (high - low) / 2;
    (readable(middle) ? high : low) = middle;
  }
  return readable(high) ? std::move(it) : nullptr;
}

}  // namespace

absl::StatusOr<Salvaged> SalvageTable(
    const rocksdb::Options& options, const std::string& file,
    const std::function<absl::Status(absl::string_view key, absl::string_view value)>& visit) {
  rocksdb::SstFileReader reader(options);
  if (const rocksdb::Status status = reader.Open(file); !status.ok()) {
    return absl::DataLossError(absl::StrCat(file, ": ", status.ToString()));
  }
  Salvaged salvaged;
  std::string last;
  std::unique_ptr<rocksdb::Iterator> it(reader.NewIterator({}));
  it->SeekToFirst();
  while (true) {
    for (; it->Valid(); it->Next()) {
      last = it->key().ToString();
      BEAMD_RETURN_IF_ERROR(visit(last, {it->value().data(), it->value().size()}));
      ++salvaged.entries;
    }
    if (it->status().ok()) return salvaged;
    ++salvaged.gaps;
    it = PassGap(reader, last);
    if (it == nullptr) return salvaged;
  }
}

}  // namespace beamd
