#include "runtime/variant.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace lazuli {
namespace {

template <class T>
void copy_elements(void* out, const void* a, const void*, const void*, int64_t n) {
  if (out != a) std::memcpy(out, a, size_t(n) * sizeof(T));
}

template <class T>
void fill_elements(void* out, const void* a, const void*, const void*, int64_t n) {
  const T value = *static_cast<const T*>(a);
  std::fill_n(static_cast<T*>(out), n, value);
}

}  // namespace

Micro copy_micro(int log_size) {
  constexpr Micro all[] = {copy_elements<uint8_t>, copy_elements<uint16_t>, copy_elements<uint32_t>,
                           copy_elements<uint64_t>};
  return all[log_size];
}

Micro fill_micro(int log_size) {
  constexpr Micro all[] = {fill_elements<uint8_t>, fill_elements<uint16_t>, fill_elements<uint32_t>,
                           fill_elements<uint64_t>};
  return all[log_size];
}

void VariantBuilder::input(int index, int log_size, bool uniform) {
  values_.push_back({Kind::input, index, log_size, uniform});
  values_.back().slot = index;
}

void VariantBuilder::constant(int index, int log_size) {
  values_.push_back({Kind::constant, index, log_size, true});
}

void VariantBuilder::computed(int log_size) { values_.push_back({Kind::computed, 0, log_size}); }

void VariantBuilder::instruction(const MicroSet& forms, double cost, int out, const int* args, int n_args) {
  Instruction made{forms, cost, out, n_args, {-1, -1, -1}};
  std::copy(args, args + n_args, made.args);
  code_.push_back(made);
  values_[out].uniform = std::all_of(args, args + n_args, [this](int v) { return values_[v].uniform; });
}

void VariantBuilder::mark_needed(const std::vector<int>& results) {
  for (int v : results) values_[v].needed = true;
  for (auto each = code_.rbegin(); each != code_.rend(); ++each) {
    if (!values_[each->out].needed) continue;
    for (int i = 0; i < each->n_args; i++) values_[each->args[i]].needed = true;
  }
}

int VariantBuilder::slot_of(int value, Variant& v) {
  Value& it = values_[value];
  if (it.slot < 0 && it.kind == Kind::constant) {
    it.slot = new_slot();
    v.fixed.push_back({uint16_t(it.slot), Variant::Fixed::constant, uint32_t(it.index * 8)});
  }
  return it.slot;
}

int VariantBuilder::take_register(int log_size, Variant& v) {
  auto& idle = free_[log_size];
  if (!idle.empty()) {
    const int slot = idle.back();
    idle.pop_back();
    return slot;
  }
  const int slot = new_slot();
  v.fixed.push_back({uint16_t(slot), Variant::Fixed::block_register, v.register_bytes});
  v.register_bytes += uint32_t(kBlock << log_size);
  return slot;
}

int VariantBuilder::splat_of(int value, Variant& v) {
  Value& it = values_[value];
  if (it.splat < 0) {
    // A fresh register, never reused: it is filled once, before the blocks.
    it.splat = new_slot();
    v.fixed.push_back({uint16_t(it.splat), Variant::Fixed::block_register, v.register_bytes});
    v.register_bytes += uint32_t(kBlock << it.log_size);
    v.splats.push_back({fill_micro(it.log_size), uint16_t(it.splat), uint16_t(slot_of(value, v))});
  }
  return it.splat;
}

// The order of the block's steps, and which results go straight to an output. An output may be the memory of
// an input, so a step may write it only when no later step reads an input.
std::vector<VariantBuilder::Planned> VariantBuilder::plan(const std::vector<int>& results, Variant& v) {
  std::vector<Planned> steps;
  for (const Instruction& each : code_) {
    if (!values_[each.out].needed) continue;
    if (!values_[each.out].uniform) {
      steps.push_back({&each, nullptr, -1, -1});
      continue;
    }
    int args[3] = {0, 0, 0};
    for (int i = 0; i < each.n_args; i++) args[i] = slot_of(each.args[i], v);
    const int slot = values_[each.out].slot = new_slot();
    v.fixed.push_back({uint16_t(slot), Variant::Fixed::cell, v.cell_bytes});
    v.cell_bytes += 8;
    v.once.push_back(
        {each.forms.dense, uint16_t(slot), uint16_t(args[0]), uint16_t(args[1]), uint16_t(args[2])});
  }
  // Inputs that are outputs unchanged: with several outputs they pass through a register, since one output's
  // memory may be the input of another.
  std::vector<int> sources = results;
  if (results.size() > 1) {
    for (int& source : sources) {
      const Value it = values_[source];
      if (it.kind != Kind::input || it.uniform) continue;
      values_.push_back({Kind::computed, 0, it.log_size});
      const int staged = int(values_.size()) - 1;
      steps.push_back({nullptr, copy_micro(it.log_size), -1, source});
      steps.back().to_output = -2 - staged;
      source = staged;
    }
  }
  int last_input_read = -1;
  for (int i = 0; i < int(steps.size()); i++) {
    const Planned& step = steps[i];
    if (!step.code) last_input_read = i;
    for (int k = 0; step.code && k < step.code->n_args; k++) {
      if (values_[step.code->args[k]].kind == Kind::input) last_input_read = i;
    }
  }
  for (int i = std::max(last_input_read, 0); i < int(steps.size()); i++) {
    if (!steps[i].code) continue;
    for (size_t o = 0; o < sources.size(); o++) {
      if (sources[o] == steps[i].code->out && values_[sources[o]].output < 0)
        values_[sources[o]].output = int(o);
    }
  }
  for (size_t o = 0; o < sources.size(); o++) {
    const Value& it = values_[sources[o]];
    if (it.output == int(o)) continue;
    steps.push_back(
        {nullptr, it.uniform ? fill_micro(it.log_size) : copy_micro(it.log_size), int(o), sources[o]});
  }
  for (int i = 0; i < int(steps.size()); i++) {
    if (!steps[i].code) values_[steps[i].from].last_use = i;
    for (int k = 0; steps[i].code && k < steps[i].code->n_args; k++)
      values_[steps[i].code->args[k]].last_use = i;
  }
  return steps;
}

void VariantBuilder::emit(const std::vector<Planned>& planned, Variant& v) {
  const auto release = [&](int value, int position) {
    Value& it = values_[value];
    if (it.kind != Kind::computed || it.uniform || it.output >= 0 || it.last_use != position) return;
    it.last_use = -2;  // an argument given twice is released once
    free_[it.log_size].push_back(it.slot);
  };
  const auto destination = [&](int value) {
    Value& it = values_[value];
    it.slot = it.output >= 0 ? n_in_ + it.output : take_register(it.log_size, v);
    return it.slot;
  };
  for (int i = 0; i < int(planned.size()); i++) {
    const Planned& step = planned[i];
    if (!step.code) {
      const int from = slot_of(step.from, v);
      release(step.from, i);
      const int to = step.to_output >= 0 ? n_in_ + step.to_output : destination(-2 - step.to_output);
      v.block.push_back({step.move, uint16_t(to), uint16_t(from), 0, 0});
      v.cost += 0.05;
      continue;
    }
    const Instruction& code = *step.code;
    const auto uniform = [&](int k) { return k < code.n_args && values_[code.args[k]].uniform; };
    // The form whose single elements are those that are single here; the operands of select's forms are its
    // branches.
    const int first = code.n_args == 3 ? 1 : 0;
    const bool left = code.n_args > 1 && uniform(first), right = code.n_args > 1 && uniform(first + 1);
    Micro form = left && right ? code.forms.both
                 : left        ? code.forms.left
                 : right       ? code.forms.right
                               : code.forms.dense;
    const bool in_form = form != nullptr;
    if (!form) form = code.forms.dense;
    int args[3] = {0, 0, 0};
    for (int k = 0; k < code.n_args; k++) {
      const bool served = in_form && k >= first;
      args[k] = uniform(k) && !served ? splat_of(code.args[k], v) : slot_of(code.args[k], v);
    }
    for (int k = 0; k < code.n_args; k++) release(code.args[k], i);
    const int to = destination(code.out);
    v.block.push_back({form, uint16_t(to), uint16_t(args[0]), uint16_t(args[1]), uint16_t(args[2])});
    v.cost += code.cost;
  }
}

Variant VariantBuilder::build(const std::vector<int>& results) {
  Variant v;
  next_slot_ = n_in_ + n_out_;
  mark_needed(results);
  const auto planned = plan(results, v);
  emit(planned, v);
  v.n_slots = uint32_t(next_slot_);
  if (v.n_slots > 0xffff)
    throw std::invalid_argument("[registerProgram] the program needs too many registers");
  // Constants do not move either; cells and registers belong to one call.
  v.direct = v.block.size() == 1 && v.once.empty() && v.register_bytes == 0;
  v.plain = v.direct && v.fixed.empty();
  return v;
}

}  // namespace lazuli
