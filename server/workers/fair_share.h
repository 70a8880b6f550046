// Who is next, when several want what only one can have: the one that had least of it so far,
// weighed. What is shared is time, a device's or a worker's, and it is charged when it was used.
//
// The accounts are those of start-time fair queueing (P. Goyal, H. Vin, H. Cheng, 1996): whoever
// comes (back) starts at the least account of those who are here, so that nobody saves up while
// away, and a newcomer doesn't wait for what others had before it came.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace beamd {

// How much haste a piece of work has. Interactive work goes before all other, whoever wants it;
// else the share decides between principals, and haste inside one.
enum class Haste : uint8_t { kBatch, kNormal, kInteractive };

struct Claim {
  std::string principal;
  Haste haste = Haste::kNormal;
};

// Not thread-safe.
class FairShare {
 public:
  // Principals with a weight of 2 get twice of those with 1, which is the weight of who isn't named.
  explicit FairShare(std::map<std::string, double> weights = {}) : weights_(std::move(weights)) {}

  // A piece of work of this principal is there, waiting or under way, until it leaves.
  void Enter(const std::string& principal) {
    Settle();
    Account& account = accounts_[principal];
    if (account.here++ == 0) account.used = std::max(account.used, floor_);
  }
  void Leave(const std::string& principal) {
    Settle();
    const auto it = accounts_.find(principal);
    if (it == accounts_.end() || --it->second.here > 0) return;
    // It would come back to this: no need to remember it.
    if (it->second.used <= floor_) accounts_.erase(it);
  }
  // Of one who is here.
  void Charge(const std::string& principal, double seconds) {
    const auto weight = weights_.find(principal);
    Account& account = accounts_[principal];
    account.used += seconds / (weight == weights_.end() ? 1.0 : weight->second);
    account.charged = ++charges_;
  }

  // Whether `a` goes before `b`. The numbers tell apart what is alike: the lower goes first.
  bool Before(const Claim& a, uint64_t a_number, const Claim& b, uint64_t b_number) const {
    const bool a_now = a.haste == Haste::kInteractive;
    const bool b_now = b.haste == Haste::kInteractive;
    if (a_now != b_now) return a_now;
    const Account a_has = Find(a.principal);
    const Account b_has = Find(b.principal);
    // Of equals who had something longer ago.
    return std::tie(a_has.used, a_has.charged, a.principal, b.haste, a_number) <
           std::tie(b_has.used, b_has.charged, b.principal, a.haste, b_number);
  }

 private:
  struct Account {
    double used = 0;
    uint64_t charged = 0;  // which charge was its last
    int here = 0;
  };

  Account Find(const std::string& principal) const {
    const auto it = accounts_.find(principal);
    return it == accounts_.end() ? Account() : it->second;
  }

  void Settle() {
    double least = -1;
    for (const auto& [name, account] : accounts_) {
      if (account.here > 0 && (least < 0 || account.used < least)) least = account.used;
    }
    floor_ = std::max(floor_, least);
  }

  std::map<std::string, double> weights_;
  std::map<std::string, Account> accounts_;
  uint64_t charges_ = 0;
  double floor_ = 0;  // the least account of those who are here, or were last
};

}  // namespace beamd
