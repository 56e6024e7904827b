// erf where sixteen lanes can look up sixteen numbers each in a register: a polynomial for each of sixteen
// pieces. Included by simd/math.h.
#ifndef LAZULI_SIMD_ERF_PIECES_H
#define LAZULI_SIMD_ERF_PIECES_H

namespace lazuli::LZ_TARGET {
namespace {

// Piece k is where |x|·3.95 rounds to k. In the first, erf(a) = a + a·Q(a); in the others erf(center + r) =
// value + r·Q(r), with centers chosen such that value has hardly an error of its own (S. Gal, "Computing
// elementary functions: a new approach for achieving high accuracy and good performance", 1986). The last
// center is where erf begins to round to 1. Q is a minimax fit, relative to erf. Together below 1.4 ulp.
struct ErfPieces {
  alignas(64) static constexpr float kCenter[16] = {
      0x0p+0f,        0x1.034e8cp-2f, 0x1.034bd4p-1f, 0x1.84dfdap-1f, 0x1.034112p+0f, 0x1.440202p+0f,
      0x1.84da6ep+0f, 0x1.c5aaaep+0f, 0x1.0345eep+1f, 0x1.23924ep+1f, 0x1.4401a2p+1f, 0x1.645b1cp+1f,
      0x1.84f39ap+1f, 0x1.a524ccp+1f, 0x1.c5b4eap+1f, 0x1.f5c29p+1f};
  alignas(64) static constexpr float kValue[16] = {
      0x0p+0f,        0x1.1e75eep-2f, 0x1.0d621cp-1f, 0x1.6f3926p-1f, 0x1.b2215ap-1f, 0x1.da624cp-1f,
      0x1.efc494p-1f, 0x1.f9c058p-1f, 0x1.fddcb6p-1f, 0x1.ff58d2p-1f, 0x1.ffd2eep-1f, 0x1.fff532p-1f,
      0x1.fffdbcp-1f, 0x1.ffff92p-1f, 0x1.ffffeep-1f, 0x1p+0f};
  alignas(64) static constexpr float kC1[16] = {
      0x1.06eba8p-3f,  0x1.0eec4ap+0f,  0x1.bf07e4p-1f,  0x1.447bdcp-1f, 0x1.9e552ap-2f,  0x1.d1b044p-3f,
      0x1.cc0a6ep-4f,  0x1.8fe814p-5f,  0x1.317c4cp-6f,  0x1.9c8682p-8f, 0x1.e7d2b4p-10f, 0x1.fd3afcp-12f,
      0x1.ce6564p-14f, 0x1.788758p-16f, 0x1.08afa2p-18f, 0x1.9e453ep-18f};
  alignas(64) static constexpr float kC2[16] = {
      0x1.fd886ap-23f,  -0x1.126b04p-2f,  -0x1.c4c7f6p-2f,  -0x1.ece6b8p-2f,
      -0x1.a399a4p-2f,  -0x1.26b3fep-2f,  -0x1.5d654p-3f,   -0x1.625916p-4f,
      -0x1.35643p-5f,   -0x1.d5d5e8p-7f,  -0x1.34afeap-8f,  -0x1.626272p-10f,
      -0x1.5f3192p-12f, -0x1.266f08p-14f, -0x1.d4dd82p-17f, 0x1.8d8a98p-13f};
  alignas(64) static constexpr float kC3[16] = {
      -0x1.812ae4p-2f, -0x1.3aed0ep-2f, -0x1.225444p-3f, 0x1.09fd82p-5f, 0x1.22594ap-3f, 0x1.5616ep-3f,
      0x1.15231cp-3f,  0x1.5ffc9p-4f,   0x1.6ee356p-5f,  0x1.4261d6p-6f, 0x1.e04b9ap-8f, 0x1.33afbep-9f,
      0x1.507582p-11f, 0x1.430e0cp-13f, 0x1.09f968p-15f, 0x1.18ef72p-9f};
  alignas(64) static constexpr float kC4[16] = {
      0x1.18373p-12f,   0x1.04d6f2p-3f,   0x1.7519f8p-3f,   0x1.2e2c74p-3f,  0x1.09f3e4p-4f, -0x1.30813cp-7f,
      -0x1.74a5bcp-5f,  -0x1.820e2cp-5f,  -0x1.0c754ep-5f,  -0x1.21f58cp-6f, -0x1.fce5ap-8f, -0x1.75a694p-9f,
      -0x1.cc3efcp-11f, -0x1.e2ce82p-12f, -0x1.bc1d0cp-15f, 0x1.41b78p-7f};
  alignas(64) static constexpr float kC5[16] = {
      0x1.c6d7bcp-4f,  0x1.486ebcp-4f,  0x1.9eb064p-8f,  -0x1.ba1d4ep-5f, -0x1.17fd7ep-4f, -0x1.716d52p-5f,
      -0x1.a5ebbcp-7f, 0x1.effa48p-8f,  0x1.aad9ep-7f,   0x1.4c2c54p-7f,  0x1.70111p-8f,   0x1.4076c4p-9f,
      0x1.c8780cp-11f, 0x1.4771dap-12f, 0x1.114746p-14f, 0x1.028d86p-6f};
};

}  // namespace
}  // namespace lazuli::LZ_TARGET

#endif
