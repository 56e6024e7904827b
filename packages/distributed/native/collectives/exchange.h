// The messages of an operation between members, in pieces. Both ends know beforehand which pieces come in
// which order.
#ifndef LAZULI_DISTRIBUTED_EXCHANGE_H
#define LAZULI_DISTRIBUTED_EXCHANGE_H

#include <atomic>
#include <vector>

#include "collectives/group.h"

namespace lazuli::dist {

// One serves the operations of a group, one after another. Kinds of messages are its subclasses.
class Exchange {
 public:
  virtual ~Exchange() = default;

  void begin(Group& group, const Work& work, uint64_t sequence);
  // Sends bytes to a rank of the group. A piece goes out once `after`, an incoming piece, is there (−1: at
  // once).
  void send(int to, const void* data, size_t bytes, int after = -1);
  // Receives them. With `with`, elements are reduced with those there: target = with ∘ received.
  // Returns the number of the incoming piece, the first of several.
  int receive(int from, void* target, size_t bytes, const void* with = nullptr);
  // Moves pieces until all are where they belong.
  virtual void run() = 0;
  // Waits for all members, each of which tells every other one its operation.
  void meet();

 protected:
  struct Out {
    const char* data;
    uint32_t bytes;
    int after;
  };
  struct In {
    char* target;
    uint32_t bytes;
    const char* with;
    int number;
  };
  // First in, first out; its memory stays for the next operation.
  template <class T>
  class Line {
   public:
    bool empty() const { return at_ == all_.size(); }
    size_t size() const { return all_.size() - at_; }
    T& operator[](size_t i) { return all_[at_ + i]; }
    T& front() { return all_[at_]; }
    void push(const T& one) { all_.push_back(one); }
    void pop() { at_++; }
    void clear() {
      all_.clear();
      at_ = 0;
    }

   private:
    std::vector<T> all_;
    size_t at_ = 0;
  };

  // Bytes of a piece, at most, of data of so many: a multiple of all elements' sizes.
  virtual size_t most_of(size_t bytes) const = 0;
  // Forgets what is left of the operation before.
  virtual void clear() = 0;
  virtual void add(int to, const Out& piece) = 0;
  virtual void add(int from, const In& piece) = 0;

  // Another thread may ask.
  bool may_go(const Out& piece) const {
    return piece.after < 0 || __atomic_load_n(&arrived_[size_t(piece.after)], __ATOMIC_SEQ_CST);
  }
  // A piece is in its target, or in `from` if it is to be reduced.
  void finish(const In& piece, const char* from);
  // @throws Failure where a member is in another operation
  void compare(int world_rank, const Label& theirs) const;
  [[noreturn]] void fail(int world_rank, const std::string& fact) const;

  Group* group_ = nullptr;
  const Work* work_ = nullptr;
  Label label_;
  std::atomic<size_t> open_ = 0;  // pieces on their way

 private:
  std::vector<char> arrived_;  // by number of the incoming piece
};

std::unique_ptr<Exchange> make_socket_exchange(const Group& group);

}  // namespace lazuli::dist

#endif
