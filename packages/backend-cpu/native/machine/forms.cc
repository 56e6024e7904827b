#include "machine/forms.h"

namespace lazuli::machine {
using Id = asmjit::x86::Inst::Id;

Form plain_form(Do what, bool wide) {
  switch (what) {
    case Do::sqrt:
      return {Id::kIdVsqrtps};
    case Do::round:
      return {wide ? Id::kIdVrndscaleps : Id::kIdVroundps};
    case Do::to_int:
      return {Id::kIdVcvttps2dq};
    case Do::to_float:
      return {Id::kIdVcvtdq2ps};
    case Do::shift_left:
      return {Id::kIdVpslld};
    case Do::shift_right:
      return {Id::kIdVpsrld};
    case Do::shift_right_sign:
      return {Id::kIdVpsrad};
    case Do::add:
      return {Id::kIdVaddps, true};
    case Do::sub:
      return {Id::kIdVsubps};
    case Do::mul:
      return {Id::kIdVmulps, true};
    case Do::div:
      return {Id::kIdVdivps};
    case Do::min:
      return {Id::kIdVminps};
    case Do::max:
      return {Id::kIdVmaxps};
    case Do::scale:
      return {Id::kIdVscalefps};
    case Do::lookup:
      return {Id::kIdVpermps};
    case Do::and_:
      return {Id::kIdVandps, true};
    case Do::or_:
      return {Id::kIdVorps, true};
    case Do::xor_:
      return {Id::kIdVxorps, true};
    case Do::and_not:
      return {Id::kIdVandnps};
    case Do::int_add:
      return {Id::kIdVpaddd, true};
    case Do::int_sub:
      return {Id::kIdVpsubd};
    case Do::int_mul:
      return {Id::kIdVpmulld, true};
    case Do::int_min:
      return {Id::kIdVpminsd, true};
    case Do::int_max:
      return {Id::kIdVpmaxsd, true};
    case Do::shift_left_by:
      return {Id::kIdVpsllvd};
    case Do::shift_right_by:
      return {Id::kIdVpsrlvd};
    case Do::shift_right_sign_by:
      return {Id::kIdVpsravd};
    case Do::compare:
      return {Id::kIdVcmpps};
    case Do::int_greater:
      return {Id::kIdVpcmpgtd};
    case Do::int_equal:
      return {Id::kIdVpcmpeqd, true};
    case Do::mask_and:
      return {wide ? Id::kIdKandw : Id::kIdVandps, true};
    case Do::mask_or:
      return {wide ? Id::kIdKorw : Id::kIdVorps, true};
    case Do::mask_xor:
      return {wide ? Id::kIdKxorw : Id::kIdVxorps, true};
    default:
      return {Id::kIdNone};
  }
}

bool has_immediate(Do what) {
  return what == Do::round || what == Do::shift_left || what == Do::shift_right ||
         what == Do::shift_right_sign || what == Do::compare;
}

FmaForms fma_forms(Do what) {
  if (what == Do::mul_add) return {Id::kIdVfmadd132ps, Id::kIdVfmadd213ps, Id::kIdVfmadd231ps};
  if (what == Do::mul_sub) return {Id::kIdVfmsub132ps, Id::kIdVfmsub213ps, Id::kIdVfmsub231ps};
  return {Id::kIdVfnmadd132ps, Id::kIdVfnmadd213ps, Id::kIdVfnmadd231ps};
}

}  // namespace lazuli::machine
