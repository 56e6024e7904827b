// It is long because choosing registers and writing instructions share one state.
#include "machine/emit.h"

#include <asmjit/x86.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "machine/forms.h"
#include "machine/registers.h"

namespace lazuli::machine {
namespace {

namespace x86 = asmjit::x86;
using Id = x86::Inst::Id;

int log_size(Format format) { return format == Format::word ? 2 : format == Format::boolean ? 0 : 1; }

class Emitter {
 public:
  Emitter(const Sequence& sequence, Target target, int operands, bool streaming)
      : code_(sequence.code()), operands_(operands), wide_(target == Target::avx512), streaming_(streaming) {}

  Emitted run() {
    arrange();
    Emitted made;
    lay_out_literals(made);

    asmjit::CodeHolder holder;
    if (holder.init(asmjit::Environment::host()) != asmjit::kErrorOk) return {};
    x86::Assembler assembler(&holder);
    a_ = &assembler;
    choose_pinned();
    write_function();
    a_ = nullptr;
    if (failed_ || holder.flatten() != asmjit::kErrorOk ||
        holder.resolveUnresolvedLinks() != asmjit::kErrorOk)
      return {};

    Pages pages = Pages::writable(holder.codeSize());
    if (!pages.address() || holder.relocateToBase(uint64_t(uintptr_t(pages.address()))) != asmjit::kErrorOk ||
        holder.copyFlattenedData(pages.address(), holder.codeSize()) != asmjit::kErrorOk || !pages.seal())
      return {};
    made.code = std::move(pages);
    made.spilled = size_t(spills_) * 64;
    return made;
  }

 private:
  struct Value {
    int reg = -1;
    bool pinned = false;
    int spill = -1;         // its spill slot in scratch memory
    int literal = -1;       // bytes into the literals
    std::vector<int> uses;  // positions in the section, ascending
    size_t next = 0;        // the first use that is still to come
  };

  const Instruction& at(int id) const { return code_[size_t(id)]; }
  Value& value(int id) { return values_[size_t(id)]; }
  bool is_mask_register(int id) const { return wide_ && at(id).mask; }
  RegisterFile& file_of(int id) { return is_mask_register(id) ? masks_ : vectors_; }

  // --- Order

  // Drops what nothing reads, splits what is done once from what every iteration does, and lets stores wait
  // for the last load, since an output's memory may be an input's.
  void arrange() {
    values_.resize(code_.size());
    std::vector<bool> needed(code_.size());
    int last_load = -1;
    for (int i = int(code_.size()) - 1; i >= 0; i--) {
      if (at(i).what == Do::store) needed[size_t(i)] = true;
      if (!needed[size_t(i)]) continue;
      if (at(i).what == Do::load && !at(i).invariant) last_load = std::max(last_load, i);
      for (int arg : at(i).args)
        if (arg >= 0) needed[size_t(arg)] = true;
    }
    std::vector<int> waiting;
    for (int i = 0; i < int(code_.size()); i++) {
      if (at(i).what == Do::store) {
        // A value that exists before the last load is stored right after it.
        (i > last_load ? body_ : waiting).push_back(i);
      } else if (needed[size_t(i)] && at(i).what != Do::literal && at(i).what != Do::table) {
        (at(i).invariant ? once_ : body_).push_back(i);
      }
      if (i == last_load) body_.insert(body_.end(), waiting.begin(), waiting.end());
    }
    for (int i : once_) value(i).spill = spills_++;
    needed_ = std::move(needed);
  }

  void lay_out_literals(Emitted& made) {
    // Tables first: they are vectors, on an aligned boundary.
    const size_t copies = wide_ ? 1 : 8;
    size_t bytes = 0;
    for (const Do what : {Do::table, Do::literal}) {
      for (size_t i = 0; i < code_.size(); i++) {
        if (code_[i].what != what || !needed_[i]) continue;
        values_[i].literal = int(bytes);
        bytes += what == Do::table ? 64 : copies * 4;
      }
    }
    auto* words = static_cast<uint32_t*>(std::aligned_alloc(64, (bytes + 64) / 64 * 64));
    if (!words) throw std::bad_alloc();
    made.literals = {words, [](uint32_t* p) { std::free(p); }};
    literals_ = words;
    for (size_t i = 0; i < code_.size(); i++) {
      if (values_[i].literal < 0) continue;
      uint32_t* const to = words + values_[i].literal / 4;
      if (code_[i].what == Do::table) {
        std::memcpy(to, code_[i].table, 64);
      } else {
        std::fill_n(to, copies, code_[i].bits);
      }
    }
  }

  void begin_section(const std::vector<int>& section, int vectors) {
    for (Value& each : values_) {
      each.uses.clear();
      each.next = 0;
      if (!each.pinned) each.reg = -1;
    }
    for (int position = 0; position < int(section.size()); position++) {
      int before[3] = {-1, -1, -1};
      for (int k = 0; k < 3; k++) {
        const int arg = before[k] = at(section[size_t(position)]).args[k];
        if (arg < 0 || (k > 0 && arg == before[0]) || (k > 1 && arg == before[1])) continue;
        value(arg).uses.push_back(position);
      }
    }
    vectors_.reset(0, vectors);
    masks_.reset(1, dry_ ? RegisterFile::kMost : 7);  // k0 means "no mask"
    for (size_t i = 0; i < values_.size(); i++)
      if (values_[i].pinned) vectors_.reserve(values_[i].reg);
  }

  void section(const std::vector<int>& section) {
    begin_section(section, dry_ ? RegisterFile::kMost : vector_registers());
    for (position_ = 0; position_ < int(section.size()); position_++) {
      write(section[size_t(position_)]);
      vectors_.unlock();
      masks_.unlock();
    }
  }

  // The last register is scratch.
  int vector_registers() const { return wide_ ? 31 : 15; }

  // Values that every iteration reads stay in the registers that no iteration needs.
  void choose_pinned() {
    dry_ = true;
    section(body_);
    dry_ = false;
    std::vector<int> candidates;
    for (int i = 0; i < int(code_.size()); i++)
      if (at(i).invariant && !is_mask_register(i) && !value(i).uses.empty()) candidates.push_back(i);
    std::stable_sort(candidates.begin(), candidates.end(),
                     [&](int a, int b) { return value(a).uses.size() > value(b).uses.size(); });
    const int spare = vector_registers() - vectors_.most();
    if (int(candidates.size()) > std::max(spare, 0)) candidates.resize(size_t(std::max(spare, 0)));
    pinned_ = candidates;
  }

  // --- Registers

  x86::Vec vec(int reg) const {
    if (wide_) return x86::Zmm(uint32_t(reg));
    return x86::Ymm(uint32_t(reg));
  }
  x86::Vec half_vec(int reg) const {
    if (wide_) return x86::Ymm(uint32_t(reg));
    return x86::Xmm(uint32_t(reg));
  }
  x86::Vec scratch() const { return vec(vector_registers()); }
  x86::Vec half_scratch() const { return half_vec(vector_registers()); }
  x86::Xmm small_scratch() const { return x86::Xmm(uint32_t(vector_registers())); }

  asmjit::Operand reg_operand(int id) {
    if (is_mask_register(id)) return x86::KReg(uint32_t(value(id).reg));
    return vec(value(id).reg);
  }
  x86::Mem spill_slot(int slot) const { return x86::ptr(x86::rdx, slot * 64); }
  // Where an instruction reads the value when it has no register.
  x86::Mem home(int id) {
    const Value& it = value(id);
    if (it.literal < 0) return spill_slot(it.spill);
    const x86::Mem at = x86::ptr(x86::r11, it.literal);
    return repeated(id) ? at._1to16() : at;
  }
  // One number in memory for all lanes.
  bool repeated(int id) const { return wide_ && at(id).what == Do::literal; }
  bool in_memory(int id) { return value(id).reg < 0; }

  void load_home(int id) {
    if (is_mask_register(id)) {
      emit(Id::kIdKmovw, reg_operand(id), spill_slot(value(id).spill));
    } else {
      copy_home(id, reg_operand(id));
    }
  }
  void store_home(int id) {
    emit(is_mask_register(id) ? Id::kIdKmovw : Id::kIdVmovaps, spill_slot(value(id).spill), reg_operand(id));
  }

  // A register for a value that has none.
  void allocate(int id) {
    RegisterFile& file = file_of(id);
    int reg = file.take(id);
    if (reg < 0) {
      reg = file.victim([this](int owner) {
        const Value& it = value(owner);
        return it.next < it.uses.size() ? it.uses[it.next] : INT_MAX;
      });
      if (reg < 0) {
        failed_ = true;
        reg = 1;
      } else {
        const int owner = file.owner(reg);
        if (value(owner).spill < 0 && value(owner).literal < 0) {
          value(owner).spill = spills_++;
          store_home(owner);
        }
        value(owner).reg = -1;
        file.give(reg, id);
      }
    }
    value(id).reg = reg;
  }

  asmjit::Operand use(int id) {
    if (in_memory(id)) {
      allocate(id);
      load_home(id);
    } else if (!value(id).pinned) {
      file_of(id).lock(value(id).reg);
    }
    return reg_operand(id);
  }
  asmjit::Operand use_or_memory(int id) {
    if (in_memory(id) && !is_mask_register(id)) return home(id);
    return use(id);
  }

  bool last_use(int id) {
    const Value& it = value(id);
    return it.next + 1 >= it.uses.size();
  }
  // True if the result may take its register over.
  bool dies(int id, const Instruction& it) {
    int times = 0;
    for (int arg : it.args) times += arg == id;
    return times == 1 && !in_memory(id) && !value(id).pinned && !at(id).invariant && last_use(id);
  }

  // Ends this instruction's reading of its arguments.
  void release(const Instruction& it, int except = -1) {
    for (int k = 0; k < 3; k++) {
      const int arg = it.args[k];
      if (arg < 0 || (k > 0 && arg == it.args[0]) || (k > 1 && arg == it.args[1])) continue;
      Value& v = value(arg);
      v.next++;
      if (v.reg < 0 || v.pinned || arg == except) continue;
      // A value with a home among the invariants is read from there again.
      if (v.next >= v.uses.size() || at(arg).invariant) {
        file_of(arg).free(v.reg);
        v.reg = -1;
      }
    }
  }

  asmjit::Operand define(int id) {
    allocate(id);
    return reg_operand(id);
  }

  template <class... Operands>
  void emit(Id id, Operands... operands) {
    if (dry_) return;
    if (a_->emit(id, operands...) != asmjit::kErrorOk) failed_ = true;
  }

  // --- Instructions

  void write(int id) {
    const Instruction& it = at(id);
    switch (it.what) {
      case Do::literal:
      case Do::table:
        return;
      case Do::load:
        write_load(id, it);
        break;
      case Do::store:
        write_store(it);
        return;
      case Do::mul_add:
      case Do::mul_sub:
      case Do::neg_mul_add:
        write_fma(id, it);
        break;
      case Do::blend:
        write_blend(id, it);
        break;
      case Do::copy_sign:
        write_copy_sign(id, it);
        break;
      case Do::mask_not: {
        const asmjit::Operand x = use(it.args[0]);
        release(it);
        const asmjit::Operand to = define(id);
        if (wide_) {
          emit(Id::kIdKnotw, to, x);
        } else {
          emit(Id::kIdVpcmpeqd, scratch(), scratch(), scratch());
          emit(Id::kIdVxorps, to, x, scratch());
        }
        break;
      }
      case Do::through_half: {
        const asmjit::Operand x = use(it.args[0]);
        release(it);
        emit(Id::kIdVcvtps2ph, half_scratch(), x, asmjit::imm(0));
        emit(Id::kIdVcvtph2ps, define(id), half_scratch());
        break;
      }
      default:
        write_plain(id, it);
    }
    if (it.invariant) store_home(id);
  }

  void write_plain(int id, const Instruction& it) {
    const Form form = plain_form(it.what, wide_);
    if (it.args[1] < 0) {
      const asmjit::Operand x = use(it.args[0]);
      release(it);
      if (has_immediate(it.what)) {
        emit(form.id, define(id), x, asmjit::imm(it.detail));
      } else {
        emit(form.id, define(id), x);
      }
      return;
    }
    int left = it.args[0], right = it.args[1];
    if (form.commutes && in_memory(left) && !in_memory(right)) std::swap(left, right);
    const asmjit::Operand x = use(left), y = use_or_memory(right);
    release(it);
    const asmjit::Operand to = define(id);
    if (has_immediate(it.what)) {
      emit(form.id, to, x, y, asmjit::imm(it.detail));
    } else {
      emit(form.id, to, x, y);
    }
  }

  void write_blend(int id, const Instruction& it) {
    const asmjit::Operand mask = use(it.args[0]), no = use(it.args[2]), yes = use_or_memory(it.args[1]);
    release(it);
    const asmjit::Operand to = define(id);
    if (wide_) {
      if (!dry_) a_->k(mask.as<x86::KReg>());
      emit(Id::kIdVblendmps, to, no, yes);
    } else {
      emit(Id::kIdVblendvps, to, no, yes, mask);
    }
  }

  void write_copy_sign(int id, const Instruction& it) {
    const asmjit::Operand size = use(it.args[0]), sign = use(it.args[1]), bits = use_or_memory(it.args[2]);
    if (wide_ && dies(it.args[0], it)) {
      const asmjit::Operand to = take_over(it.args[0], id, it);
      // size | sign & bits
      emit(Id::kIdVpternlogd, to, sign, bits, asmjit::imm(0xf8));
      return;
    }
    emit(Id::kIdVandps, scratch(), sign, bits);
    release(it);
    emit(Id::kIdVorps, define(id), size, scratch());
  }

  // Gives the register of an argument that dies here to the result.
  asmjit::Operand take_over(int argument, int id, const Instruction& it) {
    const int reg = value(argument).reg;
    release(it, argument);
    value(argument).reg = -1;
    vectors_.give(reg, id);
    value(id).reg = reg;
    return reg_operand(id);
  }

  // The result overwrites one of the three: 132 means first·third + second, and so on.
  void write_fma(int id, const Instruction& it) {
    const FmaForms forms = fma_forms(it.what);
    const int a = it.args[0], b = it.args[1], c = it.args[2];
    int overwritten = -1;
    for (int each : {c, a, b})
      if (overwritten < 0 && dies(each, it)) overwritten = each;
    const bool takes_over = overwritten >= 0;
    if (!takes_over) {
      overwritten = c;
      for (int each : {a, b, c})
        if (in_memory(each)) overwritten = each;
    }
    // The two others, the last of which may be in memory.
    int second = overwritten == c ? a : c, third = overwritten == c ? b : overwritten == a ? b : a;
    bool by_213 = false;
    if (in_memory(second) && !in_memory(third)) {
      by_213 = overwritten != c;
      std::swap(second, third);
    }
    const asmjit::Operand x = use(second), y = use_or_memory(third);
    asmjit::Operand to;
    if (takes_over) {
      use(overwritten);
      to = take_over(overwritten, id, it);
    } else {
      // Written before the others are read, so it shares no register with them.
      const bool from_memory = in_memory(overwritten);
      to = define(id);
      if (from_memory) {
        copy_home(overwritten, to);
      } else {
        emit(Id::kIdVmovaps, to, reg_operand(overwritten));
      }
      release(it);
    }
    emit(overwritten == c ? forms.by_231 : by_213 ? forms.by_213 : forms.by_132, to, x, y);
  }

  void copy_home(int id, const asmjit::Operand& to) {
    const Value& it = value(id);
    if (repeated(id)) {
      emit(Id::kIdVbroadcastss, to, x86::ptr(x86::r11, it.literal));
    } else {
      emit(Id::kIdVmovaps, to, it.literal >= 0 ? x86::ptr(x86::r11, it.literal) : spill_slot(it.spill));
    }
  }

  // --- Memory

  // The address of this iteration's elements of an operand.
  x86::Mem element(const Instruction& it) {
    const x86::Gp base = operand_pointer(it.operand);
    if (it.invariant) return x86::ptr(base);
    return x86::ptr(base, x86::rcx, uint32_t(log_size(it.format)));
  }

  x86::Gp operand_pointer(int operand) {
    for (size_t i = 0; i < pointers_.size(); i++)
      if (pointers_[i] == operand) return kPointers[i];
    emit(Id::kIdMov, x86::rax, x86::ptr(x86::rdi, operand * 8));
    return x86::rax;
  }

  void write_load(int id, const Instruction& it) {
    const x86::Mem from = element(it);
    const asmjit::Operand to = define(id);
    const bool single = it.invariant;
    switch (it.format) {
      case Format::word:
        emit(single ? Id::kIdVbroadcastss : Id::kIdVmovups, to, from);
        return;
      case Format::half:
        if (single) emit(Id::kIdVpbroadcastw, half_scratch(), from);
        single ? emit(Id::kIdVcvtph2ps, to, half_scratch()) : emit(Id::kIdVcvtph2ps, to, from);
        return;
      case Format::bfloat:
        if (single) emit(Id::kIdVpbroadcastw, half_scratch(), from);
        single ? emit(Id::kIdVpmovzxwd, to, half_scratch()) : emit(Id::kIdVpmovzxwd, to, from);
        emit(Id::kIdVpslld, to, to, asmjit::imm(16));
        return;
      case Format::boolean:
        if (wide_) {
          emit(single ? Id::kIdVpbroadcastb : Id::kIdVmovups, small_scratch(), from);
          emit(Id::kIdVptestmb, to, small_scratch(), small_scratch());
          return;
        }
        if (single) emit(Id::kIdVpbroadcastb, small_scratch(), from);
        single ? emit(Id::kIdVpmovzxbd, to, small_scratch()) : emit(Id::kIdVpmovzxbd, to, from);
        emit(Id::kIdVxorps, scratch(), scratch(), scratch());
        emit(Id::kIdVpcmpgtd, to, to, scratch());
        return;
    }
  }

  void write_store(const Instruction& it) {
    const asmjit::Operand from = use(it.args[0]);
    const x86::Mem to = element(it);
    switch (it.format) {
      case Format::word:
        emit(streaming_ ? Id::kIdVmovntps : Id::kIdVmovups, to, from);
        break;
      case Format::half:
        emit(Id::kIdVcvtps2ph, to, from, asmjit::imm(0));
        break;
      case Format::bfloat:
        emit(Id::kIdVpsrld, scratch(), from, asmjit::imm(16));
        if (wide_) {
          emit(Id::kIdVpmovdw, to, scratch());
        } else {
          emit(Id::kIdVpackusdw, scratch(), scratch(), scratch());
          emit(Id::kIdVpermq, scratch(), scratch(), asmjit::imm(0x08));
          emit(Id::kIdVmovups, to, half_scratch());
        }
        break;
      case Format::boolean:
        if (wide_) {
          emit(Id::kIdVpmovm2b, small_scratch(), from);
        } else {
          const x86::Xmm low(uint32_t(value(it.args[0]).reg));
          emit(Id::kIdVextracti128, small_scratch(), from, asmjit::imm(1));
          emit(Id::kIdVpackssdw, small_scratch(), low, small_scratch());
          emit(Id::kIdVpacksswb, small_scratch(), small_scratch(), small_scratch());
        }
        // All ones become 1.
        emit(Id::kIdVpabsb, small_scratch(), small_scratch());
        emit(wide_ ? Id::kIdVmovups : Id::kIdVmovq, to, small_scratch());
        break;
    }
    release(it);
  }

  // --- The function

  void write_function() {
    static constexpr x86::Gp kSaved[] = {x86::rbx, x86::rbp, x86::r12, x86::r13, x86::r14, x86::r15};
    for (const x86::Gp& reg : kSaved) emit(Id::kIdPush, reg);
    emit(Id::kIdMov, x86::r11, asmjit::imm(uint64_t(uintptr_t(literals_))));
    for (int i : body_) {
      const Instruction& it = at(i);
      if (it.operand < 0 || std::find(pointers_.begin(), pointers_.end(), it.operand) != pointers_.end())
        continue;
      if (pointers_.size() == std::size(kPointers)) break;
      emit(Id::kIdMov, kPointers[pointers_.size()], x86::ptr(x86::rdi, it.operand * 8));
      pointers_.push_back(it.operand);
    }
    section(once_);
    int reg = vector_registers();
    for (int id : pinned_) {
      value(id).pinned = true;
      value(id).reg = --reg;
      load_home(id);
    }
    const asmjit::Label row = a_->newLabel();
    a_->bind(row);
    emit(Id::kIdXor, x86::ecx, x86::ecx);
    a_->align(asmjit::AlignMode::kCode, 32);
    const asmjit::Label again = a_->newLabel();
    a_->bind(again);
    section(body_);
    emit(Id::kIdAdd, x86::rcx, asmjit::imm(wide_ ? 16 : 8));
    emit(Id::kIdCmp, x86::rcx, x86::rsi);
    emit(Id::kIdJb, again);
    next_row();
    emit(Id::kIdJnz, row);
    if (streaming_) emit(Id::kIdSfence);
    emit(Id::kIdVzeroupper);
    for (size_t i = std::size(kSaved); i-- > 0;) emit(Id::kIdPop, kSaved[i]);
    emit(Id::kIdRet);
  }

  // Moves the addresses on and counts the row; the flags tell whether there are more.
  void next_row() {
    for (int i = 0; i < operands_; i++) {
      const x86::Mem step = x86::ptr(x86::rdi, (operands_ + i) * 8);
      const auto at = std::find(pointers_.begin(), pointers_.end(), i);
      if (at != pointers_.end()) {
        emit(Id::kIdAdd, kPointers[at - pointers_.begin()], step);
        continue;
      }
      emit(Id::kIdMov, x86::rax, step);
      emit(Id::kIdAdd, x86::ptr(x86::rdi, i * 8), x86::rax);
    }
    emit(Id::kIdDec, x86::qword_ptr(x86::rdi, operands_ * 16));
  }

  // rdi: the table, rsi: n, rdx: the scratch memory, rcx: the element, r11: the literals, rax: scratch.
  static constexpr x86::Gp kPointers[] = {x86::r8,  x86::r9,  x86::r10, x86::rbx, x86::rbp,
                                          x86::r12, x86::r13, x86::r14, x86::r15};

  const std::vector<Instruction>& code_;
  const int operands_;
  const bool wide_, streaming_;
  x86::Assembler* a_ = nullptr;
  bool dry_ = false, failed_ = false;
  std::vector<Value> values_;
  std::vector<bool> needed_;
  std::vector<int> once_, body_, pinned_, pointers_;
  RegisterFile vectors_, masks_;
  const uint32_t* literals_ = nullptr;
  int position_ = 0, spills_ = 0;
};

}  // namespace

Emitted emit(const Sequence& sequence, Target target, int operands, bool streaming) {
  return Emitter(sequence, target, operands, streaming).run();
}

}  // namespace lazuli::machine
